//! Lanes that are not claimed from.

use leasehold_core::store::work::PausedLane;
use leasehold_core::{Lane, ShortText};
use rusqlite::{Connection, params};

use crate::error::Answer;
use crate::rows::{self, Columns};
use crate::writer::Unit;

pub(super) fn pause(
    unit: &Unit<'_>,
    lane: &Lane,
    reason: &ShortText,
    by: &ShortText,
) -> Answer<()> {
    unit.execute(
        "INSERT INTO paused_lanes (lane, reason, paused_by, since) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (lane) DO UPDATE SET reason = excluded.reason, paused_by = excluded.paused_by",
        params![
            lane.as_str(),
            reason.as_str(),
            by.as_str(),
            unit.now.as_microsecond()
        ],
    )?;
    Ok(())
}

pub(super) fn resume(unit: &mut Unit<'_>, lane: &Lane) -> Answer<bool> {
    let deleted = unit.execute(
        "DELETE FROM paused_lanes WHERE lane = ?1",
        params![lane.as_str()],
    )?;
    if deleted == 1 {
        unit.hint(lane);
    }
    Ok(deleted == 1)
}

pub(super) fn paused(db: &Connection) -> Answer<Vec<PausedLane>> {
    let mut statement =
        db.prepare_cached("SELECT lane, reason, paused_by, since FROM paused_lanes ORDER BY lane")?;
    rows::collect(&mut statement, (), |row| {
        let mut columns = Columns::of(row);
        Ok(PausedLane {
            lane: columns.named(Lane::parse)?,
            reason: ShortText::new(columns.text()?),
            by: ShortText::new(columns.text()?),
            since: columns.timestamp()?,
        })
    })
}
