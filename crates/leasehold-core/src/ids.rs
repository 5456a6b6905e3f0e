//! Identifiers, one newtype each, so that one cannot be passed for another.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The order of the bytes, compared as one number: ids are the keys of whatever a worker holds, and there
/// they are compared far more often than anything else is done with them.
macro_rules! ordered {
    ($name:ident) => {
        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                self.0.as_u128().cmp(&other.0.as_u128())
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }
    };
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        ordered!($name);

        impl $name {
            /// The nil value: the platform, or "none known".
            pub const NIL: Self = Self(Uuid::nil());

            /// Wraps a value read from storage or sent by a caller.
            pub const fn new(value: Uuid) -> Self {
                Self(value)
            }

            /// The value itself.
            pub const fn as_uuid(&self) -> Uuid {
                self.0
            }

            /// Whether this is [`Self::NIL`].
            pub const fn is_nil(&self) -> bool {
                self.0.is_nil()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }

        impl From<Uuid> for $name {
            fn from(value: Uuid) -> Self {
                Self(value)
            }
        }
    };
}

id! {
    /// One work item. `UUIDv7`, minted above storage; a relayed item has its outbox row's id.
    ItemId
}
id! {
    /// The tenant that owns a row. [`OrgId::NIL`] is the platform and owns no work.
    OrgId
}
id! {
    /// Who asked. [`UserId::NIL`] is the platform itself.
    UserId
}
id! {
    /// The record that an item advances; nil when there is none.
    TargetId
}
id! {
    /// The request that caused a row or a run; nil when none is known.
    RequestId
}
id! {
    /// Set by the producer, unique within an org from enqueue until purge.
    IdempotencyKey
}
id! {
    /// A schedule that makes items at its ticks.
    ScheduleId
}
id! {
    /// One way in which a user proves who it is.
    IdentityId
}
id! {
    /// A session that followed from a sign-in.
    SessionId
}
id! {
    /// A key that a program acts with.
    ApiKeyId
}

impl ItemId {
    /// A fresh, time-ordered id.
    pub fn mint() -> Self {
        Self(Uuid::now_v7())
    }
}

impl RequestId {
    /// A fresh, time-ordered id.
    pub fn mint() -> Self {
        Self(Uuid::now_v7())
    }
}

impl IdempotencyKey {
    /// A fresh key, for a producer that has nothing to deduplicate by.
    pub fn mint() -> Self {
        Self(Uuid::now_v7())
    }

    /// The key that any text of the producer's own maps to, always the same.
    pub fn from_text(text: &str) -> Self {
        Self(Uuid::new_v5(&KEY_NAMESPACE, text.as_bytes()))
    }
}

/// Keeps keys made from text apart from every other `UUIDv5` in the world.
const KEY_NAMESPACE: Uuid = Uuid::from_u128(0x6d1f_31d2_5a0c_4a7e_9b55_1c6e_8f27_a0b4);

impl ScheduleId {
    /// The id of the org's schedule of that name: the same in every process that declares it.
    pub fn of_name(org: OrgId, name: &str) -> Self {
        Self(Uuid::new_v5(&org.as_uuid(), name.as_bytes()))
    }
}

impl OrgId {
    /// The one org of an installation that has no tenants.
    pub const SINGLE: Self = Self(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0001));
}

/// The fence: random, minted by the worker, fresh for each claim statement.
///
/// Items taken by one claim statement share a token; a later claim of any of them carries another.
/// It is never printed whole: a log line needs only enough of it to tell two claims apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimToken(Uuid);

ordered!(ClaimToken);

impl ClaimToken {
    /// Wraps random bits that the caller vouches for, or a value read from storage.
    pub const fn new(value: Uuid) -> Self {
        Self(value)
    }

    /// A fresh token from the operating system's randomness.
    pub fn mint() -> Self {
        Self(Uuid::new_v4())
    }

    /// The value itself, for a store's condition.
    pub const fn as_uuid(&self) -> Uuid {
        self.0
    }
}

impl fmt::Debug for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.simple().to_string();
        write!(f, "{}…", &text[..8])
    }
}

impl fmt::Display for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
