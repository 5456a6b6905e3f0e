use super::*;

#[test]
fn operations_are_numbered_in_their_order() {
    for (index, operation) in Operation::ALL.iter().enumerate() {
        assert_eq!(operation.index(), index);
    }
}
