//! The paper's resource query (section 4.4.1), the latest tuples of some tables, in the language of each
//! store.

/// The facts that a placement engine asks for, each of one node: a query of complexity 8 has all.
const RESOURCES: [&str; 8] = [
    "mem/available_bytes",
    "load/load_1m",
    "mem/free_bytes",
    "load/tasks",
    "mem/dirty_bytes",
    "mem/cached_bytes",
    "mem/active_bytes",
    "mem/anonymous_bytes",
];

/// The most tables in one query, as in the paper.
pub(super) const MAX_COMPLEXITY: usize = RESOURCES.len();

/// The name of node `index`, the first being 0.
pub(super) fn node(index: usize) -> String {
    format!("n{:02}", index + 1)
}

/// A resource query.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) topics: Vec<String>,
}

impl Question {
    /// The queries of this complexity over a number of nodes: a query for each node, which begins with
    /// it, so that all nodes are asked equally often.
    pub(super) fn all(complexity: usize, nodes: usize) -> Vec<Self> {
        let one = |first: usize| {
            let resources = RESOURCES.iter().take(complexity).enumerate();
            let topics =
                resources.map(|(at, what)| format!("{}/{what}", node((first + at) % nodes)));
            Self { topics: topics.collect() }
        };
        (0..nodes).map(one).collect()
    }

    /// Every resource of one node.
    pub(super) fn of_node(index: usize) -> Self {
        Self { topics: RESOURCES.iter().map(|what| format!("{}/{what}", node(index))).collect() }
    }

    /// The statement of the paper.
    pub(super) fn union(&self) -> String {
        let select =
            |topic: &String| format!("SELECT MAX(timestamp), metric FROM {}", plain(topic));
        self.topics.iter().map(select).collect::<Vec<_>>().join(" UNION ")
    }

    /// The fastest statement for a table of latest values with the topic as its key: a look-up in the
    /// index for each topic, and no rows to be made distinct.
    pub(super) fn keyed(&self) -> String {
        let topics: Vec<String> = self.topics.iter().map(|topic| format!("'{topic}'")).collect();
        format!("SELECT time, value FROM latest WHERE topic IN ({})", topics.join(", "))
    }

    /// The query in PromQL.
    pub(super) fn promql(&self) -> String {
        let series = |topic: &String| {
            let (node, _) = topic.split_once('/').unwrap_or((topic, ""));
            format!("{}{{node=\"{node}\"}}", series(topic))
        };
        self.topics.iter().map(series).collect::<Vec<_>>().join(" or ")
    }
}

/// The series name of a topic in Prometheus, without the node, which is a label.
pub(super) fn series(topic: &str) -> String {
    let below_node = topic.split_once('/').map_or(topic, |(_, below)| below);
    format!("skopos_{}", plain(below_node))
}

/// A plain name, such as a table has, with `_` for all other characters.
fn plain(topic: &str) -> String {
    topic.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_its_number_of_tables_and_every_node_its_turn() {
        let all = Question::all(2, 3);
        let topics: Vec<_> = all.iter().map(|question| question.topics.join(" ")).collect();
        assert_eq!(
            topics,
            [
                "n01/mem/available_bytes n02/load/load_1m",
                "n02/mem/available_bytes n03/load/load_1m",
                "n03/mem/available_bytes n01/load/load_1m",
            ]
        );
        assert!(Question::all(MAX_COMPLEXITY, 16).iter().all(|q| q.topics.len() == 8));
    }

    #[test]
    fn all_languages_ask_for_the_same() {
        let question = &Question::all(2, 2)[1];
        assert_eq!(
            question.union(),
            "SELECT MAX(timestamp), metric FROM n02_mem_available_bytes UNION \
             SELECT MAX(timestamp), metric FROM n01_load_load_1m"
        );
        assert_eq!(
            question.keyed(),
            "SELECT time, value FROM latest WHERE topic IN \
             ('n02/mem/available_bytes', 'n01/load/load_1m')"
        );
        assert_eq!(
            question.promql(),
            "skopos_mem_available_bytes{node=\"n02\"} or skopos_load_load_1m{node=\"n01\"}"
        );
    }
}
