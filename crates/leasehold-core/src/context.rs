//! The stages of authority: a request at the edge, then the authority to act in one org.
//!
//! An [`OpContext`] is made only by the transitions in this module, from rows that a tenancy store
//! read. Its constructor is private and it cannot be deserialised, so holding one proves that a
//! transition was passed. A handler is given its context and no store: it has nothing to make
//! another from.

use std::sync::Arc;

use jiff::Timestamp;

use crate::ids::{OrgId, RequestId, UserId};
use crate::names::WorkerId;
use crate::store::tenancy::{MembershipRecord, OrgRecord};

/// What kind of process is acting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppKind {
    /// Answers requests.
    Api,
    /// Runs work items.
    Worker,
    /// A person's command line.
    CommandLine,
}

/// The process that acts, for logs and audit entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    /// What kind of process.
    pub kind: AppKind,
    /// Its name and release, such as `mailer@1.4.0`.
    pub version: Arc<str>,
}

impl App {
    /// The app that a worker's runs act as.
    pub fn worker(id: &WorkerId) -> Self {
        Self {
            kind: AppKind::Worker,
            version: Arc::from(id.as_str()),
        }
    }
}

/// A request at the edge: who it is from is not yet known. Proves nothing; anyone may make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestContext {
    /// This request's own id.
    pub request_id: RequestId,
    /// The process that received it.
    pub app: App,
    /// The W3C header of the span it runs under.
    pub traceparent: Option<String>,
    /// The request that caused this one, kept apart from its own id.
    pub caused_by: Option<RequestId>,
    /// When its sender stops waiting.
    pub deadline: Option<Timestamp>,
}

impl RequestContext {
    /// A request with no cause and no deadline.
    pub const fn new(request_id: RequestId, app: App) -> Self {
        Self {
            request_id,
            app,
            traceparent: None,
            caused_by: None,
            deadline: None,
        }
    }
}

/// What a principal may do. The ladder is owner, admin, member, viewer; service stands outside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Reads.
    Viewer,
    /// Reads and enqueues.
    Member,
    /// And operates the queue: cancel, retry, pause.
    Admin,
    /// And everything else in the org.
    Owner,
    /// Leasehold itself, running work. No credential carries it.
    Service,
}

/// One thing that a role allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Permission {
    /// See items.
    ReadWork,
    /// Enqueue items.
    EnqueueWork,
    /// Cancel, retry, release, pause.
    OperateWork,
    /// Settle held items; maintenance.
    RunWork,
}

impl Role {
    /// Whether the role allows it. Each rung of the ladder allows all that the one below does.
    pub const fn allows(self, permission: Permission) -> bool {
        match permission {
            Permission::ReadWork => true,
            Permission::EnqueueWork => !matches!(self, Self::Viewer),
            Permission::OperateWork => matches!(self, Self::Admin | Self::Owner),
            Permission::RunWork => matches!(self, Self::Service),
        }
    }
}

/// Authority to act in one org.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpContext {
    request: RequestContext,
    org_id: OrgId,
    user_id: UserId,
    role: Role,
}

/// The role does not allow what was asked. The caller asks someone with a higher role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the role {role:?} does not allow {permission:?}")]
pub struct NotAuthorized {
    role: Role,
    permission: Permission,
}

/// The org is absent or deleted: no work of it may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the org is gone")]
pub struct OrgGone;

impl OpContext {
    /// The request it acts for.
    pub const fn request(&self) -> &RequestContext {
        &self.request
    }

    /// The one org it may act in.
    pub const fn org_id(&self) -> OrgId {
        self.org_id
    }

    /// Whom its acts are attributed to; nil for the service itself.
    pub const fn user_id(&self) -> UserId {
        self.user_id
    }

    /// What it may do.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// The same authority, under the span that its acts belong to.
    pub fn within_trace(mut self, traceparent: Option<String>) -> Self {
        self.request.traceparent = traceparent;
        self
    }

    /// Passes if the role allows it.
    ///
    /// # Errors
    /// [`NotAuthorized`] otherwise.
    pub const fn require(&self, permission: Permission) -> Result<(), NotAuthorized> {
        if self.role.allows(permission) {
            Ok(())
        } else {
            Err(NotAuthorized {
                role: self.role,
                permission,
            })
        }
    }
}

/// The context of a claimed item: the service role, attributed to whoever enqueued it.
///
/// `enqueuer` is the live membership of the item's `created_by`; without one (a nil or departed
/// user) the run gets exactly the org's service context.
///
/// # Errors
/// [`OrgGone`] if the org is absent or deleted: the item is failed as an orphan and never handed out.
pub fn claim_context(
    request: &RequestContext,
    org: Option<&OrgRecord>,
    enqueuer: Option<&MembershipRecord>,
    cause: RequestId,
) -> Result<OpContext, OrgGone> {
    let org = org.filter(|org| org.deleted_at.is_none()).ok_or(OrgGone)?;
    let enqueuer = enqueuer.filter(|member| member.org_id == org.id);
    let mut request = request.clone();
    request.caused_by = (!cause.is_nil()).then_some(cause);
    Ok(OpContext {
        request,
        org_id: org.id,
        user_id: enqueuer.map_or(UserId::NIL, |member| member.user_id),
        role: Role::Service,
    })
}

/// The context that maintenance of one org runs under.
///
/// # Errors
/// [`OrgGone`] if the org is deleted.
pub fn service_context(request: &RequestContext, org: &OrgRecord) -> Result<OpContext, OrgGone> {
    if org.deleted_at.is_some() {
        return Err(OrgGone);
    }
    Ok(OpContext {
        request: request.clone(),
        org_id: org.id,
        user_id: UserId::NIL,
        role: Role::Service,
    })
}

/// The context of a member of an org, with the member's own role.
///
/// # Errors
/// [`OrgGone`] if the org is deleted or the membership is of another org.
pub fn member_context(
    request: &RequestContext,
    org: &OrgRecord,
    member: &MembershipRecord,
) -> Result<OpContext, OrgGone> {
    if org.deleted_at.is_some() || member.org_id != org.id {
        return Err(OrgGone);
    }
    Ok(OpContext {
        request: request.clone(),
        org_id: org.id,
        user_id: member.user_id,
        role: member.role.into(),
    })
}

#[cfg(test)]
mod tests;
