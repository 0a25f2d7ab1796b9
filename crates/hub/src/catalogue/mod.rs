//! The catalogue of jobs of a site: the database that has it, and who may see what in it.
//!
//! [`CataloguePlace`] opens the catalogue in SQLite or PostgreSQL. [`visibility`] turns a caller into a condition on jobs. It
//! asks the policy alone.

pub(crate) mod postgres;
mod place;

pub use place::CataloguePlace;
pub use postgres::{PostgresCatalogue, PostgresUrl, UrlError};

use skopos_access::{Action, Caller, may};
use skopos_store::jobs::Visibility;

/// Returns the jobs that a caller may see: exactly those that [`may`] lets it read.
pub fn visibility(caller: &Caller) -> Visibility {
    // A job that names neither user nor project is read by those alone who read every job.
    let of_nobody = Action::ReadJob { owner: None, project: None };
    match caller {
        caller if may(caller, of_nobody).is_ok() => Visibility::Everything,
        Caller::User(user) => {
            Visibility::Own { user: user.name.clone(), leads: user.leads.clone() }
        }
        _ => Visibility::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use skopos_access::{Invitation, Names, Role, User};
    use skopos_model::job::JobStart;
    use skopos_store::jobs::{
        Catalogue, Change, Dated, Filter, JobEntry, PageRequest, SqliteCatalogue,
        catalogue::conformance,
    };

    use super::*;

    fn callers() -> Vec<Caller> {
        let mut callers = vec![
            Caller::Owner,
            Caller::Anybody,
            Caller::Stranger,
            Caller::Invited(Invitation::default()),
        ];
        for is_hub in [false, true] {
            let (site, node) = ("s".to_owned(), "ann".to_owned());
            callers.push(Caller::Node(Names { site, node, is_hub }));
        }
        for role in Role::ALL {
            for name in ["ann", "bob", "bio", ""] {
                for leads in [&[][..], &["bio"], &["bio", "astro"], &["ann"], &[""]] {
                    let leads = leads.iter().map(|project| (*project).to_owned()).collect();
                    callers.push(Caller::User(User { name: name.to_owned(), role, leads }));
                }
            }
        }
        callers
    }

    fn jobs() -> Vec<JobEntry> {
        let names = ["", "ann", "bob", "bio", "astro", "Ann", "ann "];
        let starts = names.iter().flat_map(|user| names.iter().map(move |project| (user, project)));
        let with_start = starts.enumerate().map(|(number, (user, project))| {
            let (user, project) = ((*user).to_owned(), (*project).to_owned());
            let value = JobStart { user, project, ..JobStart::default() };
            let start = Some(Dated { at: 1, value });
            JobEntry { start, ..conformance::entry(&number.to_string(), &[0]) }
        });
        with_start.chain([conformance::entry("orphan", &[0])]).collect()
    }

    /// Every caller and every job: the policy, the rule in memory, and the catalogue's lists, counts and entries agree.
    #[test]
    fn a_caller_sees_the_jobs_that_the_policy_lets_it_read() {
        let catalogue = SqliteCatalogue::in_memory().expect("memory");
        let jobs = jobs();
        catalogue.apply(&Change { entries: &jobs, ..Change::default() }).expect("a change");
        let (mut allowed, mut denied) = (0, 0);
        for caller in callers() {
            let visibility = visibility(&caller);
            let may_read = |job: &&JobEntry| {
                may(&caller, Action::ReadJob { owner: job.user(), project: job.project() }).is_ok()
            };
            let filter = Filter::new(visibility.clone());
            let rows = catalogue.rows(&filter, &PageRequest::default()).expect("rows").items;
            let readable = jobs.iter().filter(may_read).count();
            assert_eq!(rows.len(), readable, "{caller}");
            assert_eq!(catalogue.count(&filter).expect("a count"), readable as u64, "{caller}");
            for job in &jobs {
                let expected = may_read(&job);
                let what = format!("{caller}: {:?} {:?}", job.user(), job.project());
                assert_eq!(visibility.shows(job.user(), job.project()), expected, "{what}");
                assert_eq!(rows.iter().any(|row| row.id == job.id), expected, "{what}");
                let entry = catalogue.get(&visibility, &job.site, &job.id).expect("readable");
                assert_eq!(entry.is_some(), expected, "{what}");
                if expected { allowed += 1 } else { denied += 1 }
            }
        }
        assert!(allowed > 500 && denied > 500, "{allowed} {denied}");
    }
}
