//! Requests of every size that matters, by either channel.

use std::os::unix::ffi::OsStrExt as _;

use super::*;

#[test]
fn the_limit_is_what_an_environment_string_leaves() {
    assert_eq!(REQUEST_BYTES_MAX, 131_056);
}

/// Requests of `bytes` bytes: of characters of one byte, and of three.
fn requests(bytes: usize) -> [String; 2] {
    let mut multibyte = "€".repeat(bytes / 3);
    multibyte.push_str(&"x".repeat(bytes % 3));
    ["x".repeat(bytes), multibyte]
}

#[test]
fn a_request_arrives_whole_or_is_refused_before_anything_starts() {
    for (bytes, fits) in [
        (0, true),
        (120_000, true),
        (131_000, true),
        (131_056, true),
        (131_057, false),
        (131_072, false),
        (200_000, false),
        (262_144, false),
    ] {
        for request in requests(bytes) {
            let request = request.as_bytes();
            let by_variable = deliver(request, Channel::Environment);
            let by_stdin = deliver(request, Channel::Stdin).unwrap();
            assert_eq!(by_stdin.stdin, Some(request), "standard input has no limit");
            if fits {
                let delivery = by_variable.unwrap();
                assert_eq!(delivery.variable.map(OsStr::as_bytes), Some(request));
                assert_eq!(delivery.stdin, None);
                assert_eq!(by_stdin.variable, delivery.variable);
            } else {
                let refused = by_variable.unwrap_err();
                assert_eq!(
                    refused,
                    RequestRefused::TooLarge {
                        bytes,
                        bytes_max: 131_056
                    }
                );
                assert_eq!(by_stdin.variable, None);
            }
        }
    }
}

#[test]
fn a_zero_byte_travels_by_stdin_alone() {
    let request = b"{\"a\": \"\0\"}";
    assert_eq!(
        deliver(request, Channel::Environment),
        Err(RequestRefused::ZeroByte { at: 7 })
    );
    assert_eq!(
        deliver(request, Channel::Stdin),
        Ok(Delivery {
            variable: None,
            stdin: Some(request)
        })
    );
}

#[test]
fn a_refusal_is_one_final_error_that_names_size_and_limit() {
    let refused = deliver(&b"x".repeat(200_000), Channel::Environment).unwrap_err();
    let error = ChildError::from(refused);
    assert_eq!(
        (error.name.as_str(), error.retryable),
        (REQUEST_TOO_LARGE, false)
    );
    assert!(
        error.message.contains("200000") && error.message.contains("131056"),
        "{}",
        error.message
    );

    let error = ChildError::from(deliver(b"a\0", Channel::Environment).unwrap_err());
    assert_eq!(
        (error.name.as_str(), error.retryable),
        (MALFORMED_MESSAGE, false)
    );
}

#[test]
fn a_request_that_fits_fits_the_environment_too() {
    let [request, _] = requests(REQUEST_BYTES_MAX);
    let environment = crate::Environment::new()
        .with(REQUEST_VARIABLE, request)
        .unwrap();
    assert_eq!(environment.bytes(), ENVIRONMENT_STRING_BYTES_MAX);
}
