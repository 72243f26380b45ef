//! From pages to a listing: every item once, and no page lost in silence.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use reqwest::{Method, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::{Error, Kind};
use crate::fault;
use crate::listing::Listing;

/// A service that goes on giving links is not believed for ever.
const MOST_PAGES: usize = 10_000;

/// Something that is listed.
pub(crate) trait Item: DeserializeOwned {
    /// What it is known by. A listing has one of each.
    fn id(&self) -> &str;

    /// Why the listing is not complete though this item is in it.
    fn gap(&self) -> Option<String> {
        None
    }
}

/// How a collection says that there is more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    /// `<collection>_links` has one that is called `next`.
    Links,
    /// The same, but only the first page says what is not there: after others, it is looked at again.
    LinksAndFirstAgain,
    /// Not at all: ask from where the last page ended until a page is empty.
    Offset,
}

struct Page<T> {
    /// How many it has, including those that cannot be understood.
    length: usize,
    items: Vec<T>,
    gaps: Vec<Error>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Link<'a> {
    #[serde(borrow, default)]
    rel: Cow<'a, str>,
    #[serde(borrow, default)]
    href: Cow<'a, str>,
}

/// Follows a collection from its first page. Only a failure of that one is an error.
///
/// `fetch` is no async closure: the future of one that borrows is not `Send` to the compiler, and callers spawn listings.
pub(crate) async fn follow<T: Item, F>(
    first: Url,
    collection: &str,
    more: More,
    mut fetch: impl FnMut(Url) -> F,
) -> Result<Listing<T>, Error>
where
    F: Future<Output = Result<Vec<u8>, Error>>,
{
    let mut gathered = Gathered { items: Vec::new(), places: HashMap::new(), gaps: Vec::new() };
    let mut seen = HashSet::from([first.clone()]);
    let mut url = first.clone();
    let mut passed = 0;
    let mut again = false;
    loop {
        let gap = |message: &str| Error::new(Kind::Garbled, message).on(&Method::GET, &url);
        let page = match fetch(url.clone()).await {
            Ok(body) => parse::<T>(&body, collection).map_err(|error| error.on(&Method::GET, &url)),
            Err(error) => Err(error),
        };
        let page = match page {
            Ok(page) => page,
            Err(error) if url == first && !again => return Err(error),
            Err(error) => {
                gathered.gaps.push(error);
                break;
            }
        };
        gathered.take(page.items);
        passed += page.length;
        gathered.gaps.extend(page.gaps.into_iter().map(|gap| gap.on(&Method::GET, &url)));
        let next = match (more, page.next) {
            (More::LinksAndFirstAgain, None) if url != first && !again => {
                again = true;
                url = first.clone();
                continue;
            }
            (_, _) if again => break,
            (More::Links | More::LinksAndFirstAgain, None) => break,
            (More::Links | More::LinksAndFirstAgain, Some(link)) => match same_origin(&first, &url, &link) {
                Ok(next) => next,
                Err(message) => {
                    gathered.gaps.push(gap(&message));
                    break;
                }
            },
            (More::Offset, _) if page.length == 0 => break,
            (More::Offset, _) => offset(&first, passed),
        };
        if !seen.insert(next.clone()) {
            gathered.gaps.push(gap("the pages go in a circle"));
            break;
        }
        if seen.len() > MOST_PAGES {
            gathered.gaps.push(gap(&format!("more than {MOST_PAGES} pages")));
            break;
        }
        url = next;
    }
    Ok(Listing { items: gathered.items, gaps: gathered.gaps })
}

struct Gathered<T> {
    items: Vec<T>,
    places: HashMap<String, usize>,
    gaps: Vec<Error>,
}

impl<T: Item> Gathered<T> {
    /// Takes a page in. An item that moved from page to page meanwhile counts once, as it was seen last.
    fn take(&mut self, items: Vec<T>) {
        for item in items {
            if let Some(gap) = item.gap() {
                self.gaps.push(Error::new(Kind::Unavailable, gap));
            }
            if let Some(&place) = self.places.get(item.id()) {
                self.items[place] = item;
            } else {
                self.places.insert(item.id().to_owned(), self.items.len());
                self.items.push(item);
            }
        }
    }
}

fn parse<T: Item>(body: &[u8], collection: &str) -> Result<Page<T>, Error> {
    let garbled = |message: String| Error::new(Kind::Garbled, message);
    let document: BTreeMap<Cow<'_, str>, &RawValue> =
        serde_json::from_slice(body).map_err(|error| garbled(fault::not_a_document(body, &error)))?;
    let part = |key: &str| document.get(key).copied();
    let raw = part(collection).ok_or_else(|| garbled(format!("the answer has no {collection}")))?;
    let raw: Vec<&RawValue> =
        serde_json::from_str(raw.get()).map_err(|_| garbled(format!("{collection} is not a list in the answer")))?;
    let mut page = Page { length: raw.len(), items: Vec::with_capacity(raw.len()), gaps: Vec::new(), next: None };
    for raw in raw {
        match serde_json::from_str::<T>(raw.get()) {
            Ok(item) if item.id().is_empty() => page.gaps.push(garbled(format!("one of the {collection} has no id"))),
            Ok(item) => page.items.push(item),
            Err(error) => page.gaps.push(garbled(format!("one of the {collection} cannot be understood: {error}"))),
        }
    }
    if let Some(links) = part(&format!("{collection}_links")) {
        // A list of links that cannot be read may hide a page.
        match serde_json::from_str::<Option<Vec<Link<'_>>>>(links.get()) {
            Ok(links) => {
                let next = links.into_iter().flatten().find(|link| link.rel == "next");
                page.next = next.map(|link| link.href.into_owned());
            }
            Err(_) => page.gaps.push(garbled(format!("{collection}_links cannot be understood"))),
        }
    }
    Ok(page)
}

/// The next page, if it is where the first one was: the token goes to no other place. A link that only lost its TLS, because the
/// service behind a proxy does not know of it, is followed with TLS.
fn same_origin(first: &Url, from: &Url, link: &str) -> Result<Url, String> {
    let mut next =
        from.join(link).map_err(|error| format!("the link to the next page, {link:?}, is no URL: {error}"))?;
    if first.scheme() == "https"
        && next.scheme() == "http"
        && next.host() == first.host()
        && next.port() == first.port()
    {
        // Between two schemes that the standard knows, this cannot fail.
        let _ = next.set_scheme("https");
    }
    next.set_fragment(None);
    if next.origin() != first.origin() || !next.username().is_empty() || next.password().is_some() {
        return Err(format!("the next page is said to be at {link:?}, another origin, which is not followed"));
    }
    Ok(next)
}

fn offset(first: &Url, count: usize) -> Url {
    let mut url = first.clone();
    url.query_pairs_mut().append_pair("offset", &count.to_string());
    url
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
    struct Thing {
        id: String,
    }

    impl Item for Thing {
        fn id(&self) -> &str {
            &self.id
        }
    }

    fn first() -> Url {
        Url::parse("https://cloud:9696/v2.0/things").unwrap()
    }

    #[allow(clippy::needless_pass_by_value, reason = "closures read better without a reference")]
    fn run(more: More, fetch: impl AsyncFn(&Url) -> Result<Vec<u8>, Error>) -> Result<Listing<Thing>, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let fetch = &fetch;
        runtime.block_on(follow(first(), "things", more, |url| async move { fetch(&url).await }))
    }

    fn ids(listing: &Listing<Thing>) -> Vec<&str> {
        listing.items.iter().map(|thing| thing.id.as_str()).collect()
    }

    fn marker(url: &Url) -> usize {
        url.query_pairs()
            .find(|(key, _)| key == "marker" || key == "offset")
            .map_or(0, |(_, value)| value.parse().unwrap())
    }

    #[derive(Debug, Clone, Copy)]
    enum Fate {
        Fine,
        Fails,
        Garbled,
        NoList,
    }

    fn fate() -> impl Strategy<Value = Fate> {
        prop_oneof![8 => Just(Fate::Fine), 1 => Just(Fate::Fails), 1 => Just(Fate::Garbled), 1 => Just(Fate::NoList)]
    }

    proptest! {
        #[test]
        fn whatever_the_pages_nothing_is_lost_in_silence_and_nothing_comes_twice(
            pages in prop::collection::vec((0..6usize, 0..3usize, fate()), 1..8),
            by_offset in any::<bool>(),
        ) {
            // Each page shows some items of the one before again, as when the collection grows meanwhile.
            let sizes: Vec<_> = pages.iter().map(|(size, _, _)| *size).collect();
            let total: usize = sizes.iter().sum();
            let start = |page: usize| sizes[..page].iter().sum::<usize>();
            let more = if by_offset { More::Offset } else { More::Links };
            let failed = std::cell::Cell::new(None::<usize>);
            let result = run(more, async |url: &Url| {
                let at = marker(url);
                // By offset a page is known by its first item, and empty pages do not exist.
                let page = if by_offset { (0..pages.len()).find(|page| start(*page + 1) > at) } else { Some(at) };
                let Some(page) = page else { return Ok(br#"{"things":[]}"#.to_vec()) };
                match pages[page].2 {
                    Fate::Fine => {}
                    Fate::Fails => { failed.set(Some(page)); return Err(Error::new(Kind::Unavailable, "down")) }
                    Fate::Garbled => { failed.set(Some(page)); return Ok(b"{\"things\":[{\"id\":\"cut".to_vec()) }
                    Fate::NoList => { failed.set(Some(page)); return Ok(b"{}".to_vec()) }
                }
                let again = if by_offset { 0 } else { pages[page].1.min(start(page)) };
                let things: Vec<_> = (start(page) - again..start(page + 1)).map(|id| json!({"id": format!("t{id}")})).collect();
                let mut body = json!({"things": things});
                if !by_offset && page + 1 < pages.len() {
                    body["things_links"] = json!([{"rel": "next", "href": format!("https://cloud:9696/v2.0/things?marker={}", page + 1)}]);
                }
                Ok(body.to_string().into_bytes())
            });
            match result {
                Err(_) => prop_assert!(failed.get().is_some_and(|page| start(page) == 0), "only the first page is an error"),
                Ok(listing) => {
                    let upto = failed.get().map_or(total, start);
                    let expected: Vec<_> = (0..upto).map(|id| format!("t{id}")).collect();
                    prop_assert_eq!(ids(&listing), expected);
                    prop_assert_eq!(listing.is_complete(), failed.get().is_none());
                }
            }
        }

        #[test]
        fn no_page_of_bytes_is_a_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse::<Thing>(&body, "things");
        }
    }

    #[test]
    fn a_link_to_another_origin_is_not_followed_and_said() {
        for link in [
            "https://evil:9696/v2.0/things?marker=1",
            "https://cloud/v2.0/things?marker=1",
            "http://cloud:9697/v2.0/things?marker=1",
            "https://user:pw@cloud:9696/v2.0/things?marker=1",
            "//evil/v2.0/things",
            "ftp://cloud:9696/v2.0/things",
        ] {
            let listing = run(More::Links, async |url: &Url| {
                assert_eq!(*url, first(), "only the first page is asked for");
                Ok(json!({"things": [{"id": "a"}], "things_links": [{"rel": "next", "href": link}]})
                    .to_string()
                    .into_bytes())
            })
            .unwrap();
            assert_eq!(ids(&listing), ["a"]);
            assert!(
                !listing.is_complete() && listing.gaps[0].message().contains("another origin"),
                "{:?}",
                listing.gaps
            );
        }
    }

    #[test]
    fn a_link_that_lost_its_tls_or_its_host_stays_at_home() {
        for (link, expected) in [
            ("http://cloud:9696/v2.0/things?marker=1", "https://cloud:9696/v2.0/things?marker=1"),
            ("/v2.0/things?marker=1#x", "https://cloud:9696/v2.0/things?marker=1"),
            ("?marker=1", "https://cloud:9696/v2.0/things?marker=1"),
        ] {
            assert_eq!(same_origin(&first(), &first(), link).unwrap().as_str(), expected);
        }
        let behind = Url::parse("https://cloud/network/v2.0/things").unwrap();
        assert_eq!(
            same_origin(&behind, &behind, "http://cloud/x?marker=1").unwrap().as_str(),
            "https://cloud/x?marker=1"
        );
        let open = Url::parse("http://cloud/things").unwrap();
        assert!(
            same_origin(&open, &open, "https://cloud/things?marker=1").is_err(),
            "another scheme is another origin"
        );
    }

    #[test]
    fn pages_in_a_circle_end_incomplete() {
        let listing = run(More::Links, async |_: &Url| {
            Ok(json!({"things": [{"id": "a"}], "things_links": [{"rel": "next", "href": "?marker=1"}]})
                .to_string()
                .into_bytes())
        })
        .unwrap();
        assert_eq!(ids(&listing), ["a"]);
        assert!(!listing.is_complete());
    }

    #[test]
    fn an_item_that_cannot_be_understood_leaves_a_gap_and_takes_no_other_with_it() {
        let listing = run(More::Links, async |_: &Url| {
            Ok(br#"{"things":[{"id":"a"},{"id":7},{},{"id":""},null,{"id":"b","new":{"x":[1]}}],"things_links":null}"#
                .to_vec())
        })
        .unwrap();
        assert_eq!(ids(&listing), ["a", "b"]);
        assert_eq!(listing.gaps.len(), 4);
        assert_eq!(listing.complete().unwrap_err().kind(), Kind::Garbled);
    }

    #[test]
    fn an_empty_list_is_complete() {
        let listing = run(More::Links, async |_: &Url| Ok(br#"{"things":[]}"#.to_vec())).unwrap();
        assert!(listing.is_complete() && listing.items.is_empty());
    }
}
