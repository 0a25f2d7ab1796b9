//! Hides a type from the compiler's proofs of `Send` and `Sync`.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// A shared value of type `T` that is `Send` and `Sync`.
///
/// A plan or a syntax tree reaches hundreds of recursive types. To prove that a holder of one is `Send` the
/// compiler walks all of them, for seconds, in each async function of each crate that holds an engine. Here
/// it is proved once, in [`new`](Self::new).
pub(crate) struct Opaque<T> {
    value: Arc<dyn Any + Send + Sync>,
    of: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static> Opaque<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Arc::new(value), of: PhantomData }
    }
}

impl<T> Clone for Opaque<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), of: PhantomData }
    }
}

impl<T: 'static> Deref for Opaque<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
            .downcast_ref()
            .unwrap_or_else(|| unreachable!("`new` stored a value of this type"))
    }
}

impl<T: fmt::Debug + 'static> fmt::Debug for Opaque<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_value_is_unchanged() {
        let opaque = Opaque::new(vec![1, 2]);
        assert_eq!((opaque.len(), format!("{opaque:?}")), (2, "[1, 2]".to_owned()));
    }
}
