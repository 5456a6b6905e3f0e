use serde::Deserialize;

use super::*;

fn route(kind: &str, channel: Channel) -> Route {
    Route {
        kind: Kind::parse(kind).unwrap(),
        channel,
    }
}

const WARNED: RegisteredError = RegisteredError {
    level: Level::Warn,
    retryable: false,
};

fn by_type() -> Routes {
    let routes = [
        ("atmos".to_owned(), route("ATMOS", Channel::Environment)),
        ("stream".to_owned(), route("STREAM", Channel::Stdin)),
    ];
    Routes::by_field(
        "asset_upload_type",
        routes.into(),
        "UnsupportedAssetUploadType",
        WARNED,
    )
    .unwrap()
}

fn request(json: &str) -> JsonObject {
    JsonObject::from_stored(json)
}

#[test]
fn a_field_decides_and_others_pass() {
    let routes = by_type();
    let taken = routes.select(&request(
        "{\"task_token\": \"t\", \"asset_upload_type\": \" atmos \", \"deep\": [{\"a\": 1}], \"n\": 1e400}",
    ));
    assert_eq!(taken.unwrap().kind.as_str(), "ATMOS");
    let unsupported = routes
        .select(&request("{\"asset_upload_type\": \"vhs\"}"))
        .unwrap_err();
    assert_eq!(unsupported.error, "UnsupportedAssetUploadType");
    assert_eq!(unsupported.message, "unsupported asset_upload_type: vhs");
    assert_eq!(unsupported.level, Level::Warn);
    for json in [
        "{}",
        "{\"asset_upload_type\": 7}",
        "{\"asset_upload_type\": \" \"}",
    ] {
        assert_eq!(
            routes.select(&request(json)).unwrap_err().error,
            "MalformedMessage",
            "{json}"
        );
    }
}

#[test]
fn a_type_of_the_consumers_own_decides() {
    #[derive(Deserialize)]
    struct MyRequest {
        asset_upload_type: String,
    }
    let errors = RegisteredErrors::new([("Unsupported", WARNED)]).unwrap();
    let routes = Routes::typed(errors, |request: MyRequest| {
        match request.asset_upload_type.as_str() {
            "atmos" => Ok(route("ATMOS", Channel::Environment)),
            "odd" => Err(("NotRegistered".to_owned(), "odd".to_owned())),
            other => Err(("Unsupported".to_owned(), format!("unsupported: {other}"))),
        }
    });
    assert!(
        routes
            .select(&request("{\"asset_upload_type\": \"atmos\", \"more\": 1}"))
            .is_ok()
    );
    let fails = |json: &str| routes.select(&request(json)).unwrap_err();
    assert_eq!(
        fails("{\"asset_upload_type\": \"vhs\"}").error,
        "Unsupported"
    );
    assert_eq!(
        fails("{\"asset_upload_type\": \"odd\"}").error,
        "UnknownSubprocessError"
    );
    assert_eq!(
        fails("{\"asset_upload_type\": \"odd\"}").message,
        "NotRegistered: odd"
    );
    let missing = fails("{}");
    assert_eq!(
        (
            missing.error.as_str(),
            missing.message.contains("asset_upload_type")
        ),
        ("MalformedMessage", true)
    );
    let secret = fails("{\"asset_upload_type\": {\"hunter2\": 1}}");
    assert!(!secret.message.contains("hunter2"), "{}", secret.message);
}

/// CHILD-3: what does not fit the channel is refused before anything is done, naming size and limit.
#[test]
fn a_request_too_large_for_its_channel_is_refused() {
    let routes = by_type();
    let sized = |way: &str, bytes: usize, fill: &str| {
        let head = format!("{{\"asset_upload_type\": \"{way}\", \"x\": \"");
        let room = bytes - head.len() - 2;
        let mut body = head + &fill.repeat(room / fill.len());
        body += &"x".repeat(bytes - 2 - body.len());
        request(&(body + "\"}"))
    };
    for fill in ["x", "ü"] {
        for (bytes, fits) in [
            (120_000, true),
            (131_000, true),
            (131_056, true),
            (131_057, false),
            (131_072, false),
            (200_000, false),
            (262_144, false),
        ] {
            let chosen = routes.select(&sized("atmos", bytes, fill));
            assert_eq!(chosen.is_ok(), fits, "{bytes}");
            if let Err(refused) = chosen {
                assert_eq!(refused.error, "RequestTooLarge");
                assert!(
                    refused.message.contains(&bytes.to_string())
                        && refused.message.contains("131056")
                );
            }
            assert!(
                routes.select(&sized("stream", bytes, fill)).is_ok(),
                "{bytes} by stdin"
            );
        }
    }
    let zero = request("{\"asset_upload_type\": \"atmos\"}\0");
    assert_eq!(routes.select(&zero).unwrap_err().error, "MalformedMessage");
}

#[test]
fn names_of_the_workers_own_cannot_stand_for_unsupported() {
    for name in ["AbortedStaleTask", "States.Timeout", "", "WorkerStopping"] {
        assert!(
            Routes::by_field("x", BTreeMap::new(), name, WARNED).is_err(),
            "{name}"
        );
    }
}
