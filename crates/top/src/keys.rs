//! What each key does: the one table that key handling and the help page both come from.

use super::input::Key;
use super::panes::PANES;

/// What a key asks for.
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
}

/// Some keys, as the help names them, and what they do.
pub(crate) struct Binding {
    pub label: &'static str,
    pub help: &'static str,
    /// The action of a key, if this binding has it.
    action: fn(Key) -> Option<Action>,
}

/// Evaluates to the action if the key is one of those.
macro_rules! keys {
    ($($key:pat => $action:expr),+ $(,)?) => {
        |key| match key { $($key => Some($action),)+ _ => None }
    };
}

/// Every binding, in the order of the help page.
pub(crate) static BINDINGS: &[Binding] = &[
    Binding {
        label: "1-9 i f",
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
        help: "show only rows that hold a text",
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

/// What `key` does outside of the filter's line.
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
    fn no_key_has_two_meanings_and_no_binding_has_no_key() {
        for key in all_keys() {
            let count = BINDINGS.iter().filter(|b| (b.action)(key).is_some()).count();
            assert!(count <= 1, "{key:?}");
        }
        for binding in BINDINGS {
            assert!(all_keys().into_iter().any(|k| (binding.action)(k).is_some()));
        }
    }
}
