//! The tree of a JSON text: what is where, and whether two trees differ only as an edit was meant to change them.

use std::ops::Range;

use jsonc_parser::ast::{Object, Value as Node};
use jsonc_parser::common::Ranged;

use super::{Addition, parse_tree};

/// A member of an object with its key, or an element of an array.
pub(super) type Item<'n> = (Option<&'n str>, &'n Node<'n>);

/// The items of an object or array.
pub(super) fn items<'n>(container: &'n Node<'n>) -> Vec<Item<'n>> {
    match container {
        Node::Object(object) => {
            object.properties.iter().map(|member| (Some(member.name.as_str()), &member.value)).collect()
        }
        Node::Array(array) => array.elements.iter().map(|element| (None, element)).collect(),
        _ => Vec::new(),
    }
}

/// Where an item is in the text, with its key.
pub(super) fn item_range(container: &Node, at: usize) -> Option<Range<usize>> {
    let range = match container {
        Node::Object(object) => object.properties.get(at)?.range,
        Node::Array(array) => array.elements.get(at)?.range(),
        _ => return None,
    };
    Some(range.start..range.end)
}

pub(super) fn count(container: &Node) -> usize {
    match container {
        Node::Object(object) => object.properties.len(),
        Node::Array(array) => array.elements.len(),
        _ => 0,
    }
}

pub(super) fn position(object: &Object, key: &str) -> Option<usize> {
    object.properties.iter().position(|member| member.name.as_str() == key)
}

/// Whether two trees are equal outside of the container at the end of `way`, and `is_expected` of what is in it.
pub(super) fn differs_only_in<'n>(
    before: &'n Node<'n>,
    after: &'n Node<'n>,
    way: &[usize],
    is_expected: impl FnOnce(&[Item], &[Item]) -> bool,
) -> bool {
    let (old, new) = (items(before), items(after));
    if !is_same_kind(before, after) {
        return false;
    }
    let Some((at, inner)) = way.split_first() else { return is_expected(&old, &new) };
    match (old.get(*at), new.get(*at)) {
        (Some((_, before)), Some((_, after))) => {
            let same_key = old[*at].0 == new[*at].0;
            same_key && is_same_but(&old, &new, *at) && differs_only_in(before, after, inner, is_expected)
        }
        _ => false,
    }
}

/// Whether the items are those of before and then this one.
pub(super) fn is_added(before: &[Item], after: &[Item], addition: &Addition) -> bool {
    after.split_last().is_some_and(|(last, rest)| are_same(before, rest) && is_item(last, addition))
}

/// Whether the items are those of before, with this one at a place.
pub(super) fn is_replaced(before: &[Item], after: &[Item], at: usize, addition: &Addition) -> bool {
    is_same_but(before, after, at) && after.get(at).is_some_and(|item| is_item(item, addition))
}

/// Whether the items are those of before without one.
pub(super) fn is_removed(before: &[Item], after: &[Item], at: usize) -> bool {
    after.len() + 1 == before.len()
        && are_same(&before[..at], &after[..at])
        && are_same(&before[at + 1..], &after[at..])
}

fn is_item(item: &Item, addition: &Addition) -> bool {
    let alone = addition.in_container();
    parse_tree(&alone).ok().flatten().is_some_and(|alone| are_same(&items(&alone), &[*item]))
}

pub(super) fn is_same_but(before: &[Item], after: &[Item], at: usize) -> bool {
    before.len() == after.len()
        && are_same(&before[..at], &after[..at])
        && are_same(&before[at + 1..], &after[at + 1..])
}

fn are_same(before: &[Item], after: &[Item]) -> bool {
    before.len() == after.len()
        && before.iter().zip(after).all(|((old_key, old), (key, value))| old_key == key && is_same(old, value))
}

/// Whether two values are equal, wherever they are in their texts.
pub(super) fn is_same<'n>(before: &'n Node<'n>, after: &'n Node<'n>) -> bool {
    match (before, after) {
        (Node::Object(old), Node::Object(new)) => {
            let (old, new) = (&old.properties, &new.properties);
            let members = || old.iter().zip(new);
            old.len() == new.len()
                && members().all(|(old, new)| old.name.as_str() == new.name.as_str() && is_same(&old.value, &new.value))
        }
        (Node::Array(old), Node::Array(new)) => {
            let (old, new) = (&old.elements, &new.elements);
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_same(old, new))
        }
        (Node::StringLit(old), Node::StringLit(new)) => old.value == new.value,
        (Node::NumberLit(old), Node::NumberLit(new)) => old.value == new.value,
        (Node::BooleanLit(old), Node::BooleanLit(new)) => old.value == new.value,
        (Node::NullKeyword(_), Node::NullKeyword(_)) => true,
        _ => false,
    }
}

fn is_same_kind(before: &Node, after: &Node) -> bool {
    std::mem::discriminant(before) == std::mem::discriminant(after)
}
