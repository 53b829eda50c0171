//! A page of a list by its number and its size: where one is too large, smaller ones are asked for.

use super::PAGE_ITEMS;
use crate::ports::ErrorClass;
use crate::source::github::Asked;

/// The smallest page that is asked for. Of the largest items, with 64 KB of text each for an issue and for a comment on it, so many
/// are far from too large.
const PAGE_ITEMS_MIN: usize = 10;

/// Which page, of so many items. Counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageNumber {
    pub(super) number: usize,
    pub(super) items: usize,
}

impl PageNumber {
    /// The page that `url` asks for.
    pub(super) fn of(url: &str) -> Self {
        let (_, query) = url.split_once('?').unwrap_or((url, ""));
        let value = |name: &str| {
            let mut values = query.split('&').filter_map(|pair| pair.split_once('='));
            values.find(|(known, _)| *known == name)?.1.parse().ok()
        };
        Self {
            number: value("page").unwrap_or(1),
            items: value("per_page").unwrap_or(PAGE_ITEMS),
        }
    }

    /// The smaller page that begins where this one does, or a little before.
    pub(super) fn smaller(self) -> Option<Self> {
        let items = fewer(self.items)?;
        let before = self.number.saturating_sub(1).saturating_mul(self.items);
        let number = before.checked_div(items)?.saturating_add(1);
        Some(Self { number, items })
    }

    /// `url` with this page in place of its own.
    pub(super) fn on(self, url: &str) -> String {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let kept = query.split('&').filter(|pair| {
            let name = pair.split('=').next().unwrap_or_default();
            !matches!(name, "" | "page" | "per_page")
        });
        let mut pairs: Vec<String> = kept.map(str::to_owned).collect();
        pairs.push(format!("per_page={}", self.items));
        pairs.push(format!("page={}", self.number));
        format!("{path}?{}", pairs.join("&"))
    }
}

/// How many items to ask for where so many are too large.
pub(super) fn fewer(items: usize) -> Option<usize> {
    let fewer = items.checked_div(2)?.max(PAGE_ITEMS_MIN);
    (fewer < items).then_some(fewer)
}

/// Whether a page had no answer because of its size.
pub(super) fn is_too_large(asked: &Asked) -> bool {
    matches!(asked, Asked::Unanswered(word) if *word == ErrorClass::TooLarge.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_page_begins_where_the_larger_one_does_or_before_and_leaves_the_rest_of_its_query() {
        let url = "https://api.github.com/repositories/1/events?status=completed&per_page=100&page=3";
        let mut page = PageNumber::of(url);
        assert_eq!((page.number, page.items), (3, 100));
        let mut seen = Vec::new();
        while let Some(smaller) = page.smaller() {
            let begins = |page: PageNumber| (page.number - 1) * page.items;
            assert!(begins(smaller) <= begins(page) && begins(page) < begins(smaller) + smaller.items);
            page = smaller;
            assert_eq!(PageNumber::of(&page.on(url)), page);
            seen.push((page.number, page.items));
        }
        assert_eq!(seen, [(5, 50), (9, 25), (17, 12), (20, 10)]);
        assert_eq!(
            page.on(url),
            "https://api.github.com/repositories/1/events?status=completed&per_page=10&page=20"
        );
        assert_eq!(
            PageNumber::of("/repos/a/b/events"),
            PageNumber { number: 1, items: 100 }
        );
    }
}
