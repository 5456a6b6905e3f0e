//! The client: what is refused where it enters, what a repeated call finds, and who may do what.

use std::time::Duration;

use leasehold::core::context::member_context;
use leasehold::core::store::tenancy::{MemberRole, MembershipRecord, OrgRecord};
use leasehold::core::store::work::{Cancelled, Enqueued, Filter, Page, Retried};
use leasehold::core::{
    App, AppKind, Due, IdempotencyKey, NewItem, OrgId, RequestContext, RequestId, TargetId, UserId,
};
use leasehold::{Client, ClientError, HandlerError, ItemId, Run, Status, Work};
use leasehold_testkit::fault::{Fault, Operation};
use serde::{Deserialize, Serialize};

use crate::harness::{Job, MS, Rig, SEC, inserted, jobs, leased, pass, settings};

async fn stored(rig: &Rig) -> usize {
    let page = Page {
        before: None,
        limit: 1_000,
    };
    rig.client
        .list(&Filter::default(), &page)
        .await
        .unwrap()
        .items
        .len()
}

/// DATA-1, single: the zero character in a value, in a key and nested, and a lone surrogate, are
/// refused with the place; nothing is stored.
#[tokio::test(start_paused = true)]
async fn what_no_store_can_hold_is_refused_with_the_place() {
    let rig = Rig::new();
    let bad = [
        (r#"{"name":"a\u0000b"}"#, "$.name"),
        (r#"{"a\u0000b":1}"#, "$.a"),
        (
            r#"{"list":[1,["x",{"deep":"\u0000"}]]}"#,
            "$.list[1][1].deep",
        ),
        ("{\"name\":\"a\\u0000\"}", "$.name"),
        (r#"{"name":"\ud800"}"#, "line 1 column 1"),
        (r#"{"name":"\udc00\ud800"}"#, "line 1 column 1"),
        ("[1]", "object"),
        ("", "JSON"),
        (r#"{"a":1}x"#, "trailing"),
    ];
    for (payload, says) in bad {
        let error = rig.client.enqueue_raw("JOB", payload).await.unwrap_err();
        assert!(
            matches!(error, ClientError::Invalid(_)),
            "{payload}: {error}"
        );
        assert!(error.to_string().contains(says), "{payload}: {error}");
    }
    assert_eq!(stored(&rig).await, 0);
}

/// DATA-1: the harmless text that only looks like the escape survives unchanged, all the way to the
/// handler's own kind and back.
#[tokio::test(start_paused = true)]
async fn what_only_looks_like_the_escape_survives() {
    let rig = Rig::new();
    let payloads = [
        r#"{"n":0,"s":"\\u0000"}"#,
        r#"{"n":0,"s":"\\\\u0000"}"#,
        r#"{"n":0,"s":"u0000"}"#,
        r#"{"n":0,"s":"\u0001"}"#,
        r#"{"n":0,"s":"\ud83d\ude00"}"#,
        r#"{"n":0,"\\u0000":"\\ud800", "big":12345678901234567890.5 }"#,
    ];
    let worker = rig.start(jobs(|_: Job, _: Run| async {}), settings());
    for payload in payloads {
        let id = inserted(rig.client.enqueue_raw("JOB", payload).await.unwrap());
        let item = rig.until_status(id, Status::Done).await;
        assert_eq!(item.payload.as_str(), payload);
    }
    worker.stop().await;
}

/// DATA-1: a typed payload that holds the zero character is refused as well.
#[tokio::test(start_paused = true)]
async fn a_typed_payload_is_held_to_the_same_rule() {
    #[derive(Serialize, Deserialize)]
    struct Named {
        name: String,
    }
    impl Work for Named {
        const KIND: &'static str = "NAMED";
    }
    let rig = Rig::new();
    let named = Named {
        name: "a\0b".to_owned(),
    };
    let error = rig.client.enqueue(&named).await.unwrap_err();
    assert!(error.to_string().contains("$.name"), "{error}");
    assert_eq!(stored(&rig).await, 0);
}

/// DATA-1, batch: one bad row of a hundred refuses the whole batch and is named; nothing is stored.
#[tokio::test(start_paused = true)]
async fn one_bad_row_refuses_the_batch_and_is_named() {
    type Spoil = fn(&mut NewItem);
    let spoils: [(&str, Spoil); 4] = [
        ("max_attempts", |item| item.max_attempts = 0),
        ("max_attempts", |item| item.max_attempts = u32::MAX),
        ("traceparent", |item| {
            item.traceparent = Some("00-zz\0".to_owned());
        }),
        ("bytes", |item| {
            let large = format!("{{\"x\":\"{}\"}}", "y".repeat(600));
            item.payload = leasehold::JsonObject::parse(&large).unwrap();
        }),
    ];
    for (says, spoil) in spoils {
        let rig = Rig::new();
        let client = rig.client.clone().with_payload_bytes_max(500);
        let mut items: Vec<NewItem> = (0..100)
            .map(|n| client.typed(&Job { n }).unwrap())
            .collect();
        spoil(&mut items[57]);
        let error = client.enqueue_many(items.clone()).await.unwrap_err();
        let ClientError::InvalidRow { row: 57, reason } = &error else {
            panic!("{error}");
        };
        assert!(reason.contains(says), "{reason}");
        assert!(error.to_string().contains("row 57"), "{error}");
        assert!(
            error
                .to_string()
                .contains("nothing of the batch was stored"),
            "{error}"
        );
        assert_eq!(stored(&rig).await, 0);
        items.remove(57);
        let fates = client.enqueue_many(items).await.unwrap();
        assert_eq!(fates.len(), 99);
        assert!(
            fates
                .iter()
                .all(|fate| matches!(fate, Enqueued::Inserted(_)))
        );
    }
}

/// DATA-1, batch of texts: the row is named where its text becomes an item.
#[tokio::test(start_paused = true)]
async fn a_bad_text_of_many_is_found_before_anything_is_stored() {
    let rig = Rig::new();
    let texts = (0..100).map(|n| match n {
        57 => r#"{"list":["ok","\u0000"]}"#.to_owned(),
        n => format!("{{\"n\":{n}}}"),
    });
    let items: Result<Vec<NewItem>, ClientError> =
        texts.map(|text| rig.client.raw("JOB", &text)).collect();
    let error = items.unwrap_err();
    assert!(error.to_string().contains("$.list[1]"), "{error}");
    assert_eq!(stored(&rig).await, 0);
}

/// DATA-3: the size limit counts bytes, to the byte, and is said before anything is stored.
#[tokio::test(start_paused = true)]
async fn the_payload_limit_is_exact() {
    let rig = Rig::new();
    let client = rig.client.clone().with_payload_bytes_max(100);
    let sized = |bytes: usize| format!("{{\"x\":\"{}\"}}", "y".repeat(bytes - 8));
    inserted(client.enqueue_raw("JOB", &sized(100)).await.unwrap());
    let error = client.enqueue_raw("JOB", &sized(101)).await.unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("101 bytes") && message.contains("100 bytes"),
        "{message}"
    );
    let mebibyte = sized(1 << 20);
    inserted(rig.client.enqueue_raw("JOB", &mebibyte).await.unwrap());
    let error = rig.client.enqueue_raw("JOB", &sized((1 << 20) + 1)).await;
    assert!(error.unwrap_err().to_string().contains("1048577 bytes"));
    assert_eq!(stored(&rig).await, 2);
}

/// Names and headers are parsed where they enter, and the first mistake is told at the await.
#[tokio::test(start_paused = true)]
async fn names_are_checked_where_they_enter() {
    let rig = Rig::new();
    let job = Job { n: 0 };
    for (error, says) in [
        (rig.client.enqueue_raw("send invoice", "{}").await, "kind"),
        (rig.client.enqueue(&job).lane("two words").await, "lane"),
        (rig.client.enqueue(&job).lane("").priority(3).await, "lane"),
        (
            rig.client.enqueue(&job).max_attempts(0).await,
            "max_attempts",
        ),
        (
            rig.client.enqueue(&job).traceparent("00-abc").await,
            "traceparent",
        ),
        (
            rig.client
                .enqueue(&job)
                .traceparent("x".repeat(10_000))
                .await,
            "… [cut]",
        ),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(says) && error.len() < 400, "{error}");
    }
    assert_eq!(stored(&rig).await, 0);
}

/// What is set on the way is what is stored.
#[tokio::test(start_paused = true)]
async fn an_item_is_stored_as_it_was_set() {
    let rig = Rig::new();
    let (id, key, target) = (
        ItemId::mint(),
        IdempotencyKey::from_text("invoice-7"),
        TargetId::new(uuid::Uuid::now_v7()),
    );
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let fate = rig
        .client
        .enqueue(&Job { n: 7 })
        .id(id)
        .key_text("invoice-7")
        .lane("bulk")
        .priority(-3)
        .max_attempts(9)
        .target(target)
        .traceparent(trace)
        .delay(60 * SEC)
        .await;
    assert_eq!(inserted(fate.unwrap()), id);
    let item = rig.client.get_by_key(key).await.unwrap().unwrap();
    assert_eq!(item, rig.client.get(id).await.unwrap().unwrap());
    assert_eq!(item.payload.as_str(), r#"{"n":7}"#);
    assert_eq!(
        (item.lane.as_str(), item.priority, item.max_attempts),
        ("bulk", -3, 9)
    );
    assert_eq!(
        (item.target_id, item.traceparent.as_deref()),
        (target, Some(trace))
    );
    assert_eq!(item.available_at, rig.clock.now() + 60 * SEC);
    assert_eq!(item.created_by, rig.client.context().user_id());
    assert_eq!(item.request_id, rig.client.context().request().request_id);
}

/// Facts 2.2: a retried enqueue finds the row, touches no claim and wakes nobody; another id with a
/// held key finds the key's holder.
#[tokio::test(start_paused = true)]
async fn a_repeated_enqueue_finds_the_row_and_leaves_its_claim_alone() {
    let rig = Rig::new();
    let (id, key) = (ItemId::mint(), IdempotencyKey::from_text("once"));
    let enqueue = || rig.client.enqueue(&Job { n: 0 }).id(id).key(key);
    // The answer to the first is lost: asked again, as the error says one may.
    rig.faults.fail_next(Operation::Enqueue, Fault::LostAnswer);
    let faulty = Client::new(rig.faulty(), rig.client.context().clone());
    let lost = faulty.enqueue(&Job { n: 0 }).id(id).key(key).await;
    let ClientError::Store(error) = lost.unwrap_err() else {
        panic!()
    };
    assert!(error.is_passing());
    rig.claim_elsewhere(60 * SEC).await;
    let held = rig.item(id).await;
    assert_eq!(enqueue().await.unwrap(), Enqueued::IdExists(held.clone()));
    let other = rig.client.enqueue(&Job { n: 1 }).key(key).await.unwrap();
    assert_eq!(other, Enqueued::KeyExists(held.clone()));
    assert_eq!(rig.item(id).await, held);
    assert_eq!(stored(&rig).await, 1);
}

/// More rows than one transaction takes: all are stored, and each fate stands at its row's place.
#[tokio::test(start_paused = true)]
async fn many_rows_go_in_several_transactions_and_keep_their_order() {
    let rig = Rig::new();
    let items: Vec<NewItem> = (0..2_500)
        .map(|n| rig.client.typed(&Job { n }).unwrap())
        .collect();
    let ids: Vec<ItemId> = items.iter().map(|item| item.id).collect();
    let client = Client::new(rig.faulty(), rig.client.context().clone());
    // The second transaction fails: the first has landed, and asking again finds it.
    rig.faults.fail_next(Operation::Enqueue, Fault::Delay(MS));
    rig.faults
        .fail_next(Operation::Enqueue, Fault::unavailable());
    client.enqueue_many(items.clone()).await.unwrap_err();
    let fates = client.enqueue_many(items).await.unwrap();
    let found: Vec<(ItemId, bool)> = fates
        .iter()
        .map(|fate| match fate {
            Enqueued::Inserted(item) => (item.id, true),
            Enqueued::IdExists(item) => (item.id, false),
            fate => panic!("{fate:?}"),
        })
        .collect();
    assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
    assert_eq!(found.iter().filter(|(_, new)| !new).count(), 1_000);
    assert!(client.enqueue_many(Vec::new()).await.unwrap().is_empty());
}

/// An id that belongs to another org is refused, and nothing of it is shown.
#[tokio::test(start_paused = true)]
async fn another_orgs_id_is_taken() {
    let rig = Rig::new();
    let other = OrgId::new(uuid::Uuid::now_v7());
    let theirs = rig.client.typed(&Job { n: 1 }).unwrap();
    let id = theirs.id;
    rig.stores.work.enqueue(other, vec![theirs]).await.unwrap();
    let error = rig.client.enqueue(&Job { n: 2 }).id(id).await.unwrap_err();
    assert!(
        matches!(error, ClientError::IdTaken(taken) if taken == id),
        "{error}"
    );
    assert!(rig.client.get(id).await.unwrap().is_none());
}

fn client_of(rig: &Rig, role: MemberRole) -> Client {
    let org = OrgRecord {
        id: OrgId::SINGLE,
        name: "single".to_owned(),
        created_at: rig.clock.now(),
        deleted_at: None,
    };
    let user_id = UserId::new(uuid::Uuid::now_v7());
    let member = MembershipRecord {
        org_id: org.id,
        user_id,
        role,
    };
    let app = App {
        kind: AppKind::Api,
        version: "test".into(),
    };
    let request = RequestContext::new(RequestId::mint(), app);
    let context = member_context(&request, &org, &member).unwrap();
    Client::new(rig.stores.clone(), context)
}

/// The role decides, before anything is read or written.
#[tokio::test(start_paused = true)]
async fn a_client_does_what_its_role_allows() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    for (role, enqueues, operates) in [
        (MemberRole::Viewer, false, false),
        (MemberRole::Member, true, false),
        (MemberRole::Admin, true, true),
        (MemberRole::Owner, true, true),
    ] {
        let client = client_of(&rig, role);
        assert!(client.get(id).await.unwrap().is_some());
        assert!(client.explain(id).await.unwrap().is_some());
        let refused = |error: ClientError| matches!(error, ClientError::NotAuthorized(_));
        let enqueued = client.enqueue(&Job { n: 1 }).await;
        let many = client
            .enqueue_many(vec![client.typed(&Job { n: 2 }).unwrap()])
            .await;
        assert_eq!(
            enqueued.map(|_| ()).map_err(refused),
            if enqueues { Ok(()) } else { Err(true) }
        );
        assert_eq!(
            many.map(|_| ()).map_err(refused),
            if enqueues { Ok(()) } else { Err(true) }
        );
        let retried = client.retry(id).await;
        assert_eq!(
            retried.map(|_| ()).map_err(refused),
            if operates { Ok(()) } else { Err(true) }
        );
        let cancelled = client.cancel(ItemId::mint()).await;
        assert_eq!(
            cancelled.map(|_| ()).map_err(refused),
            if operates { Ok(()) } else { Err(true) }
        );
    }
    assert!(
        rig.audit().await.is_empty(),
        "nothing happened, so nothing is audited"
    );
}

/// Cancel of a queued item ends it at once; of a finished one it changes nothing.
#[tokio::test(start_paused = true)]
async fn a_queued_item_is_cancelled_at_once() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let Cancelled::Ended(item) = rig.client.cancel(id).await.unwrap() else {
        panic!()
    };
    assert_eq!((item.status, item.claim_seq), (Status::Failed, 0));
    assert_eq!(item.failure_code.unwrap().as_str(), "cancelled");
    let again = rig.client.cancel(id).await.unwrap();
    assert!(matches!(again, Cancelled::AlreadyFinal(_)));
    assert!(matches!(
        rig.client.cancel(ItemId::mint()).await.unwrap(),
        Cancelled::NotFound
    ));
    let acts: Vec<String> = rig
        .audit()
        .await
        .into_iter()
        .map(|entry| entry.entry.kind)
        .collect();
    assert_eq!(acts, vec!["work.item.cancel"]);
}

/// A retried dead letter starts over; a second death is a second audit entry.
#[tokio::test(start_paused = true)]
async fn a_retried_dead_letter_starts_over() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let handler = |_: Job, _: Run| async { Err::<(), _>(HandlerError::new("no").for_good()) };
    let worker = rig.start(jobs(handler), settings());
    rig.until_item(id, |item| item.audited_at.is_some()).await;
    let Retried::Queued(item) = rig.client.retry(id).await.unwrap() else {
        panic!()
    };
    assert_eq!(
        (item.attempts, item.worker_losses, item.claim_seq),
        (0, 0, 1)
    );
    let item = rig
        .until_item(id, |item| item.claim_seq == 2 && item.audited_at.is_some())
        .await;
    assert_eq!(
        (item.status, item.attempts, item.errors.len()),
        (Status::Failed, 1, 2)
    );
    let acts: Vec<String> = rig
        .audit()
        .await
        .into_iter()
        .map(|entry| entry.entry.kind)
        .collect();
    assert_eq!(
        acts,
        vec![
            "work.item.dead_letter",
            "work.item.retry",
            "work.item.dead_letter"
        ]
    );
    let queued = rig.enqueue(&Job { n: 1 }).await;
    rig.until_status(queued, Status::Failed).await;
    worker.stop().await;
    let waiting = rig.enqueue(&Job { n: 2 }).await;
    let answer = rig.client.retry(waiting).await.unwrap();
    assert!(matches!(answer, Retried::NotFailed(_)), "{answer:?}");
}

/// An item's life as `explain` tells it.
#[tokio::test(start_paused = true)]
async fn explain_follows_an_items_life() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let says = async |what: &str| {
        let said = rig.client.explain(id).await.unwrap().unwrap();
        let all = said.reasons.join("\n");
        assert!(all.contains(what), "{all}");
    };
    says("no live worker claims from the lane default").await;
    let handler = |_: Job, run: Run| async move {
        if run.attempt() == 1 {
            pass(5 * SEC).await;
            return Err(HandlerError::new("no luck"));
        }
        pass(60 * SEC).await;
        Ok(())
    };
    let worker = rig.start(jobs(handler), leased(20 * SEC));
    rig.until_status(id, Status::Claimed).await;
    says("attempt 1 of 3").await;
    says(&format!("held by {}", worker.id)).await;
    rig.until_status(id, Status::Queued).await;
    says("attempt 1 of 3 ended: handler_error: no luck").await;
    says("not before").await;
    pass(MS).await;
    rig.client.cancel(id).await.unwrap();
    says("cancelled at").await;
    worker.stop().await;
    assert!(rig.client.explain(ItemId::mint()).await.unwrap().is_none());
}

/// An item enqueued for a moment that is over is due at once.
#[tokio::test(start_paused = true)]
async fn an_instant_in_the_past_is_due_at_once() {
    let rig = Rig::new();
    let worker = rig.start(jobs(|_: Job, _: Run| async {}), settings());
    let past = rig.clock.now() - Duration::from_hours(24);
    let id = inserted(rig.client.enqueue(&Job { n: 0 }).at(past).await.unwrap());
    rig.until_status(id, Status::Done).await;
    let mut far = rig.client.typed(&Job { n: 1 }).unwrap();
    far.due = Due::After(Duration::MAX);
    let fates = rig.client.enqueue_many(vec![far]).await.unwrap();
    assert!(matches!(fates[0], Enqueued::Inserted(_)));
    assert!(rig.elapsed() < SEC);
    worker.stop().await;
}
