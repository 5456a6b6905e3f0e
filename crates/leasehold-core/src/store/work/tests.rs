use std::collections::BTreeSet;
use std::mem;

use super::TENANTLESS;

/// Each method of the trait: its name, its documentation, its signature.
fn methods() -> Vec<(String, String, String)> {
    let source = include_str!("../work.rs");
    let body = source.split("pub trait WorkStore").nth(1).unwrap();
    let body = body.split("\n}\n").next().unwrap();
    let (mut docs, mut signature) = (String::new(), String::new());
    let mut methods = Vec::new();
    for line in body.lines().skip(1).map(str::trim) {
        if line.starts_with("///") {
            docs.push_str(line);
        } else {
            signature.push_str(line);
        }
        if signature.ends_with(';') {
            let name = signature
                .split("fn ")
                .nth(1)
                .unwrap()
                .split('(')
                .next()
                .unwrap();
            methods.push((
                name.to_owned(),
                mem::take(&mut docs),
                mem::take(&mut signature),
            ));
        }
    }
    methods
}

#[test]
fn the_list_of_methods_without_an_org_is_the_trait() {
    let without: BTreeSet<String> = methods()
        .into_iter()
        .filter(|(_, _, signature)| !signature.contains("org: OrgId"))
        .map(|(name, _, _)| name)
        .collect();
    let listed: BTreeSet<String> = TENANTLESS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(without, listed);
}

#[test]
fn a_method_without_an_org_says_why() {
    for (name, docs, _) in methods() {
        let says = docs.contains("Takes no org");
        assert_eq!(says, TENANTLESS.contains(&name.as_str()), "{name}");
    }
}
