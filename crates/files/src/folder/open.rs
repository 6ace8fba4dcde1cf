//! Opening of an object in a folder, and resuming after a restart: the state of an earlier run,
//! and a survey of the folder.

use std::collections::BTreeMap;
use std::sync::Arc;

use faircast_proto::object::Part;
use fixedbitset::FixedBitSet;

use super::abilities::Abilities;
use super::files::Files;
use super::state::{JOURNAL, MANIFEST, StateFolder};
use super::survey::{Existing, Scope, Survey};
use super::{Folder, LeftOut, attributes, locked};
use crate::dir::Root;
use crate::error::{FilesError, Result};
use crate::hash::HoleHashes;
use crate::layout::Layout;
use crate::manifest::{Entry, Kind, Manifest};
use crate::name;
use crate::store::{Journal, Request, Shared};
use crate::table::Table;

struct Found {
    abilities: Abilities,
    left_out: Arc<LeftOut>,
    journal: Journal,
    have: FixedBitSet,
    existing: Existing,
}

pub(super) fn open(
    shared: &Arc<Shared<Folder>>,
    request: &Request,
) -> Result<(Folder, Arc<Files>, FixedBitSet)> {
    let layout = check_manifest(request)?;
    let folder = &shared.options.dir;
    let root = Root::open(folder)?;
    let state = StateFolder::open(&root, &request.announcement.object)?;
    let found = match look(shared, request, &layout, &root, &state) {
        Ok(found) => found,
        Err(error) => {
            if state.find(JOURNAL)?.is_none() {
                let _ = state.remove();
            }
            return Err(error);
        }
    };
    let Found { abilities, left_out, journal, have, mut existing } = found;
    let locations = std::mem::take(&mut existing.locations);
    let files = Arc::new(Files::new(layout, root, state, (abilities, left_out, locations)));
    let cannot = |error| files.state.cannot(error);
    let identity = files.state.identity()?;
    shared.counters.identity.get_or_init(|| identity);
    let opened = Folder {
        shared: shared.clone(),
        journal,
        hashed: FixedBitSet::with_capacity(files.layout.groups as usize),
        have: have.clone(),
        chain: Table::new(files.layout.digest_bytes(), folder).map_err(cannot)?,
        hole_hashes: HoleHashes::new(&files.layout, folder).map_err(cannot)?,
        existing,
        replaced: BTreeMap::new(),
        cursor: 0,
        scratch: Vec::new(),
        files: files.clone(),
    };
    Ok((opened, files, have))
}

fn look(
    shared: &Shared<Folder>,
    request: &Request,
    layout: &Layout,
    root: &Root,
    state: &StateFolder,
) -> Result<Found> {
    // Otherwise a directory that an interrupted run has left widened would count as writable.
    locked::restore_left(root, state.fd())?;
    for neighbour in state.neighbours() {
        if let Some(_lock) = neighbour.lock() {
            // On an error the saved modes stay for a later attempt.
            let _ = locked::restore_left(root, neighbour.fd());
        }
    }
    let object = &request.announcement.object;
    let groups = layout.groups;
    let mut have = match state.find(JOURNAL)? {
        Some(file) => Journal::read(file, object, groups).map_err(|error| state.cannot(error))?,
        None => FixedBitSet::with_capacity(groups as usize),
    };
    let abilities = Abilities::learn(shared.options.calls(), layout, state)?;
    let left_out = Arc::new(LeftOut::find(layout, &abilities));
    state.save_source(shared.options.source)?;
    let scope = Scope { shared, layout, root, state, abilities: &abilities, left_out: &left_out };
    let mut survey = Survey::new(scope)?;
    survey.entries()?;
    if survey.reuse(&mut have)? {
        begin_journal((shared, state), object, &have, groups)?;
        save_manifest(state, &request.manifest)?;
    }
    survey.parts(&mut have)?;
    let existing = survey.finish()?;
    attributes::check(&shared.options, layout, state, &abilities)?;
    let journal = begin_journal((shared, state), object, &have, groups)?;
    save_manifest(state, &request.manifest)?;
    for (file, _) in &existing.targets {
        layout.groups_of(*file).for_each(|group| have.set(group as usize, true));
    }
    let counters = &shared.counters;
    counters.left_out.get_or_init(|| left_out.clone());
    counters.manifest.get_or_init(|| layout.manifest.clone());
    let found = (0..groups).filter(|group| have.contains(*group as usize));
    let found = found.map(|group| u64::from(layout.group(group).len)).sum();
    counters.update(|counts| {
        counts.files = layout.files();
        counts.bytes_found = found;
    });
    Ok(Found { abilities, left_out, journal, have, existing })
}

fn check_manifest(request: &Request) -> Result<Layout> {
    let announcement = &request.announcement;
    if *blake3::hash(&request.manifest).as_bytes() != announcement.object {
        return Err(FilesError::Sender("the list of files is not the one it announced".into()));
    }
    let manifest = Manifest::decode(&request.manifest)?;
    if let [Entry { kind: Kind::Image { size: None }, path, .. }] = manifest.entries() {
        let title = name::shown(path);
        let what = format!(
            "{title}: comes from a pipe, of unknown length: take it with `recv --object {title}` and \
             --to-device FILE or --to-command"
        );
        return Err(FilesError::Unwanted(what));
    }
    let layout = Layout::new(manifest);
    for (part, want) in
        [(Part::Content, layout.manifest.content_bytes()), (Part::Digests, layout.digest_bytes())]
    {
        let announced = announcement.len(part);
        if announced != want {
            return Err(FilesError::Sender(format!(
                "it announces {announced} bytes of {part:?}, and its list of files makes {want}"
            )));
        }
    }
    Ok(layout)
}

fn begin_journal(
    (shared, state): (&Shared<Folder>, &StateFolder),
    object: &[u8; 32],
    have: &FixedBitSet,
    groups: u32,
) -> Result<Journal> {
    const NEW: &str = "journal.new";
    let mut journal = Journal::new(state.create(NEW)?, &state.path, *object, shared.journal());
    journal.begin(have, groups).map_err(|error| state.cannot(error))?;
    state.rename(NEW, JOURNAL)?;
    Ok(journal)
}

fn save_manifest(state: &StateFolder, manifest: &[u8]) -> Result<()> {
    use std::io::Write as _;
    let there = state.find(MANIFEST)?.and_then(|file| file.metadata().ok());
    if there.is_some_and(|there| there.len() == manifest.len() as u64) {
        return Ok(());
    }
    state.create(MANIFEST)?.write_all(manifest).map_err(|error| state.cannot(error))
}
