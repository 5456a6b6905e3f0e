//! The list of methods without a tenant, held both ways against the trait's own source.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::store::work::TENANTLESS;
use leasehold_testkit::fault::Operation;

const SOURCE: &str = include_str!("../../../leasehold-core/src/store/work.rs");

/// What the trait says of one method.
#[derive(Debug, Default)]
struct Method {
    docs: String,
    arguments: String,
}

/// The methods of `trait WorkStore`, by name.
fn methods() -> BTreeMap<String, Method> {
    let (_, body) = SOURCE.split_once("pub trait WorkStore").expect("the trait");
    let (body, _) = body.split_once("\n}\n").expect("the trait's end");
    let mut methods = BTreeMap::new();
    let mut docs = String::new();
    let mut lines = body.lines();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if let Some(text) = line.strip_prefix("///") {
            docs.push_str(text);
            docs.push('\n');
            continue;
        }
        let signature = line.strip_prefix("async ").unwrap_or(line);
        let Some(signature) = signature.strip_prefix("fn ") else {
            continue;
        };
        let mut signature = signature.to_owned();
        while !signature.ends_with(';') {
            signature.push_str(lines.next().expect("the signature's end").trim());
        }
        let (name, arguments) = signature.split_once('(').expect("arguments");
        let method = Method {
            docs: std::mem::take(&mut docs),
            arguments: arguments.to_owned(),
        };
        methods.insert(name.to_owned(), method);
    }
    methods
}

#[test]
fn the_list_of_methods_without_a_tenant_is_the_traits_own() {
    let without: BTreeSet<String> = methods()
        .into_iter()
        .filter(|(_, method)| !method.arguments.contains("org: OrgId"))
        .map(|(name, _)| name)
        .collect();
    let listed: BTreeSet<String> = TENANTLESS.iter().map(ToString::to_string).collect();
    assert_eq!(listed.len(), TENANTLESS.len(), "an entry stands twice");
    assert_eq!(without, listed, "found in the trait, and listed");
}

#[test]
fn a_method_without_a_tenant_says_why() {
    let methods = methods();
    for name in TENANTLESS {
        let method = &methods[*name];
        assert!(
            method.docs.contains("Takes no org"),
            "{name} does not say why it takes no org"
        );
    }
}

#[test]
fn the_fault_store_knows_every_method() {
    let mut methods = methods();
    methods.remove("subscribe");
    let known: BTreeSet<String> = Operation::ALL
        .iter()
        .map(|op| op.name().to_owned())
        .collect();
    assert_eq!(methods.into_keys().collect::<BTreeSet<_>>(), known);
}
