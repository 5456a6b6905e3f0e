//! Texts of every length and shape, from a handler to the row: cut on a character boundary, or kept.

use leasehold::core::ShortText;
use leasehold::core::text::CUT_MARKER;
use leasehold::{
    Failure, FailureCode, HandlerError, InProcess, ItemId, Outcome, Run, Status, Work,
};
use serde::{Deserialize, Serialize};

use crate::harness::{MS, Rig, SEC, pass, settings};
use leasehold::WorkerSettings;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Way {
    Error,
    ForGood,
    Panic,
    Park,
    Release,
    Refuse,
    Progress,
    Code,
}

const WAYS: [Way; 8] = [
    Way::Error,
    Way::ForGood,
    Way::Panic,
    Way::Park,
    Way::Release,
    Way::Refuse,
    Way::Progress,
    Way::Code,
];

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Speak {
    way: Way,
    text: String,
}

impl Work for Speak {
    const KIND: &'static str = "SPEAK";
}

/// Of 1, 2, 3 and 4 bytes, and a letter with two combining marks.
const UNITS: [&str; 5] = ["a", "é", "€", "😀", "e\u{301}\u{327}"];

fn texts() -> Vec<String> {
    let limit = ShortText::BYTES_MAX;
    let mut texts = vec![
        String::new(),
        "a\0b".to_owned(),
        "\u{202e}\u{7f}\r\n".to_owned(),
    ];
    for unit in UNITS {
        for length in limit - 4..=limit + 4 {
            // As many units as fit, and then padded to the byte.
            let mut text = unit.repeat(length / unit.len());
            text.insert_str(0, &"x".repeat(length - text.len()));
            texts.push(text);
        }
        texts.push(unit.repeat(100_000));
    }
    texts
}

async fn speak(speak: Speak, run: Run) -> Result<Outcome, HandlerError> {
    let text = speak.text;
    match speak.way {
        Way::Error => Err(HandlerError::new(text)),
        Way::ForGood => Err(HandlerError::new(text).for_good()),
        Way::Panic => panic!("{text}"),
        Way::Park => Ok(Outcome::Parked {
            reason: text.into(),
            resume_after: 600 * SEC,
        }),
        Way::Release => Ok(Outcome::Released { note: text.into() }),
        Way::Refuse => Ok(Outcome::Refused {
            reason: text.into(),
        }),
        Way::Progress => {
            run.progress(50, text);
            pass(5 * SEC).await;
            Ok(Outcome::done())
        }
        Way::Code => {
            let failure = Failure::own(FailureCode::HANDLER_ERROR, text);
            Err(HandlerError::from_failure(failure).with_code("Custom"))
        }
    }
}

/// DATA-2: every text a handler may leave, at every length around the limit, in characters of every
/// size: no panic of ours, valid text within the limit, a marker where it was cut, the outcome as it was.
#[tokio::test(start_paused = true)]
async fn a_text_is_kept_whole_or_cut_on_a_character_boundary() {
    let rig = Rig::new();
    let executor = InProcess::new().handle::<Speak>(speak).unwrap();
    let settings = WorkerSettings {
        capacity: 500,
        lease: 8 * SEC,
        poll_interval: 500 * MS,
        ..settings()
    };
    let worker = rig.start(executor, settings);
    let mut spoken = Vec::new();
    for way in WAYS {
        for text in texts() {
            let id = rig
                .enqueue(&Speak {
                    way,
                    text: text.replace('\0', ""),
                })
                .await;
            spoken.push((way, text.replace('\0', ""), id));
        }
    }
    for (way, text, id) in spoken {
        check(&rig, way, &text, id).await;
    }
    worker.stop().await;
}

async fn check(rig: &Rig, way: Way, text: &str, id: ItemId) {
    let (stored, status) = if way == Way::Progress {
        let item = rig.until_status(id, Status::Done).await;
        (item.progress.unwrap().note, Status::Done)
    } else {
        let item = rig
            .until_item(id, |item| {
                item.status != Status::Claimed && item.last_error.is_some()
            })
            .await;
        (item.last_error.unwrap(), item.status)
    };
    let expected = match way {
        Way::ForGood | Way::Refuse => Status::Failed,
        Way::Progress => Status::Done,
        Way::Release => status,
        _ => Status::Queued,
    };
    assert_eq!(status, expected, "{way:?}");
    let prefix = match way {
        Way::Error | Way::ForGood => "handler_error: ",
        Way::Panic => "panicked: ",
        Way::Refuse => "refused: ",
        Way::Code => "Custom: ",
        Way::Park | Way::Release | Way::Progress => "",
    };
    let stored = stored.as_str();
    let whole = format!("{prefix}{text}");
    let what = format!("{way:?} of {} bytes", text.len());
    assert!(
        stored.len() <= ShortText::BYTES_MAX,
        "{what}: {}",
        stored.len()
    );
    if whole.len() <= ShortText::BYTES_MAX {
        assert_eq!(stored, whole, "{what}");
    } else {
        let kept = stored.strip_suffix(CUT_MARKER);
        let kept = kept
            .unwrap_or_else(|| panic!("{what}: no marker at {:?}", &stored[stored.len() - 9..]));
        let kept = kept.trim_end_matches(CUT_MARKER);
        assert!(
            kept.len() >= ShortText::BYTES_MAX - 4 * CUT_MARKER.len(),
            "{what}: too short"
        );
        let same = kept
            .bytes()
            .zip(whole.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        assert!(
            kept.len() - same <= CUT_MARKER.len(),
            "{what}: not the beginning of it"
        );
    }
}

/// A zero character in what a handler leaves cannot be stored by every backend; it is replaced.
#[tokio::test(start_paused = true)]
async fn a_zero_character_in_a_message_is_replaced() {
    let rig = Rig::new();
    let executor = InProcess::new()
        .handle::<Speak>(|_: Speak, _: Run| async { Err::<(), _>(HandlerError::new("a\0b")) })
        .unwrap();
    let worker = rig.start(executor, settings());
    let id = rig
        .enqueue(&Speak {
            way: Way::Error,
            text: String::new(),
        })
        .await;
    let item = rig.until_item(id, |item| item.last_error.is_some()).await;
    assert_eq!(
        item.last_error.unwrap().as_str(),
        "handler_error: a\u{fffd}b"
    );
    worker.stop().await;
}
