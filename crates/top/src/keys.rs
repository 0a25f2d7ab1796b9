//! The actions of all keys, in the table from which both the help page and the handling of keys come.

use crate::input::Key;
use crate::panes::PANES;

/// The action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Pane(usize),
    NextPane,
    PreviousPane,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Filter,
    ClearFilter,
    Sort,
    Reverse,
    Pause,
    Help,
    Suspend,
    Quit,
    /// A key of another pane.
    Ignore,
}

/// Some keys, by their names in the help, and their action.
pub(crate) struct Binding {
    pub label: &'static str,
    pub help: &'static str,
    /// Returns the action of a key of this binding.
    action: fn(Key) -> Option<Action>,
}

/// Evaluates to a function from these keys to their actions.
macro_rules! keys {
    ($($key:pat => $action:expr),+ $(,)?) => {
        |key| match key { $($key => Some($action),)+ _ => None }
    };
}

/// Every binding, in the order of the help page.
pub(crate) static BINDINGS: &[Binding] = &[
    Binding {
        label: "0-9 i f",
        help: "go to that pane (insights, findings)",
        action: |key| match key {
            Key::Char(c) => PANES.iter().position(|pane| pane.key == c).map(Action::Pane),
            _ => None,
        },
    },
    Binding {
        label: "Tab Right",
        help: "next pane",
        action: keys!(Key::Tab | Key::Right | Key::Char('l') => Action::NextPane),
    },
    Binding {
        label: "Shift-Tab Left",
        help: "previous pane",
        action: keys!(Key::BackTab | Key::Left | Key::Char('h') => Action::PreviousPane),
    },
    Binding {
        label: "Up Down",
        help: "move by a row (also k j)",
        action: keys!(
            Key::Up | Key::Char('k') => Action::Up,
            Key::Down | Key::Char('j') => Action::Down,
        ),
    },
    Binding {
        label: "PgUp PgDn",
        help: "move by a page (also Space)",
        action: keys!(
            Key::PageUp => Action::PageUp,
            Key::PageDown | Key::Char(' ') => Action::PageDown,
        ),
    },
    Binding {
        label: "Home End",
        help: "first or last row (also g G)",
        action: keys!(
            Key::Home | Key::Char('g') => Action::First,
            Key::End | Key::Char('G') => Action::Last,
        ),
    },
    Binding {
        label: "/",
        help: "show only rows that contain a text",
        action: keys!(Key::Char('/') => Action::Filter),
    },
    Binding {
        label: "Esc",
        help: "show all rows again",
        action: keys!(Key::Escape => Action::ClearFilter),
    },
    Binding {
        label: "s",
        help: "sort by the next column",
        action: keys!(Key::Char('s') => Action::Sort),
    },
    Binding {
        label: "c m i",
        // The pane itself chooses the order: `i` leads to another pane elsewhere.
        help: "in procs: sort by cpu, memory, io",
        action: keys!(Key::Char('c' | 'm') => Action::Ignore),
    },
    Binding {
        label: "r",
        help: "reverse the order",
        action: keys!(Key::Char('r') => Action::Reverse),
    },
    Binding { label: "p", help: "pause and go on", action: keys!(Key::Char('p') => Action::Pause) },
    Binding {
        label: "?",
        help: "this page (also F1)",
        action: keys!(Key::Char('?') | Key::F1 => Action::Help),
    },
    Binding {
        label: "Ctrl-Z",
        help: "back to the shell; `fg` returns",
        action: keys!(Key::Control('z') => Action::Suspend),
    },
    Binding {
        label: "q Ctrl-C",
        help: "leave",
        action: keys!(Key::Char('q') | Key::Control('c') => Action::Quit),
    },
];

/// Returns the action of `key`, unless a filter is being typed.
pub(crate) fn action(key: Key) -> Option<Action> {
    BINDINGS.iter().find_map(|binding| (binding.action)(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_keys() -> Vec<Key> {
        use Key::*;
        let mut keys = vec![
            Up, Down, Left, Right, Home, End, PageUp, PageDown, Tab, BackTab, Enter, Escape,
            Backspace, F1,
        ];
        keys.extend((' '..='~').map(Char));
        keys.extend(('a'..='z').map(Control));
        keys
    }

    #[test]
    fn every_key_has_at_most_one_binding_and_every_binding_a_key() {
        for key in all_keys() {
            let count = BINDINGS.iter().filter(|b| (b.action)(key).is_some()).count();
            assert!(count <= 1, "{key:?}");
        }
        for binding in BINDINGS {
            assert!(all_keys().into_iter().any(|k| (binding.action)(k).is_some()));
        }
    }
}
