//! Cuts a byte stream into JSON messages.
//!
//! OVSDB has no length prefix and no separator: a message ends where its outermost bracket closes. The scanner keeps its
//! place, so a snapshot that arrives in a thousand reads is looked at once.

use std::io;
use std::ops::Range;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Room that is asked for before each read.
const READ_CHUNK: usize = 64 * 1024;
/// A buffer that grew past this is given back once its message is done: snapshots are rare and large.
const KEEP_CAPACITY: usize = 1024 * 1024;

/// Why a byte stream is not a stream of JSON messages.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A byte between messages that can start none.
    #[error("expected a JSON object, found byte 0x{byte:02x}")]
    Garbage {
        /// The offending byte.
        byte: u8,
    },
    /// A message that is not UTF-8.
    #[error("a message that is not UTF-8")]
    NotText,
    /// The message is larger than this client accepts.
    #[error("message larger than {limit} bytes; raise `max_message` if the database is really that large")]
    TooLarge {
        /// The limit that was passed.
        limit: usize,
    },
    /// The peer closed the stream, perhaps inside a message.
    #[error("connection closed by the peer{}", if *.inside { " in the middle of a message" } else { "" })]
    Closed {
        /// Whether part of a message had arrived.
        inside: bool,
    },
    /// The transport failed.
    #[error("connection lost: {0}")]
    Io(io::Error),
}

/// The members of a message that are remembered. JSON-RPC has five; what comes after these is not looked at.
const MOST_MEMBERS: usize = 8;

/// Finds the end of JSON objects in bytes that arrive piecemeal.
///
/// On its way it notes where the members of the outermost object are, so that nobody has to walk through a snapshot of
/// many megabytes a second time only to find where it begins and ends.
#[derive(Debug, Default)]
pub struct Scanner {
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// Bytes of the message before those that `scan` is given next.
    offset: usize,
    members: Vec<Member>,
    /// Where the member begins that is being looked at, and its colon if that was passed.
    member: (usize, Option<usize>),
}

/// Where a member of the outermost object is, counted from the message's first byte.
#[derive(Debug, Clone, Copy)]
struct Member {
    start: usize,
    colon: usize,
    end: usize,
}

impl Scanner {
    /// Whether the bytes so far end inside a message.
    #[must_use]
    pub fn inside(&self) -> bool {
        self.depth > 0
    }

    /// Looks at bytes that were not looked at before. `Some(n)`: a message ends after `n` of them.
    ///
    /// White space between messages counts as part of the message that follows.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.in_string {
                if self.escaped {
                    self.escaped = false;
                    at += 1;
                    continue;
                }
                let Some(n) = quote_or_backslash(&bytes[at..]) else { break };
                self.escaped = bytes[at + n] == b'\\';
                self.in_string = self.escaped;
                at += n + 1;
                continue;
            }
            at += 1;
            match byte {
                b'"' if self.depth > 0 => self.in_string = true,
                b'{' if self.depth == 0 => {
                    self.depth = 1;
                    self.members.clear();
                    self.member = (self.offset + at, None);
                }
                b' ' | b'\t' | b'\r' | b'\n' => {}
                byte if self.depth == 0 => return Err(FrameError::Garbage { byte }),
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.end_member(at - 1);
                        self.offset = 0;
                        return Ok(Some(at));
                    }
                }
                b':' if self.depth == 1 => self.member.1 = Some(self.offset + at - 1),
                b',' if self.depth == 1 => {
                    self.end_member(at - 1);
                    self.member = (self.offset + at, None);
                }
                _ => {}
            }
        }
        self.offset += bytes.len();
        Ok(None)
    }

    /// The message that [`Scanner::scan`] has just found the end of.
    #[must_use]
    pub fn frame<'a>(&'a self, text: &'a str) -> Frame<'a> {
        Frame { text, members: &self.members }
    }

    fn end_member(&mut self, at: usize) {
        if let (start, Some(colon)) = self.member
            && self.members.len() < MOST_MEMBERS
        {
            self.members.push(Member { start, colon, end: self.offset + at });
        }
    }
}

/// Eight bytes at a time: most of a message is text.
fn quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
    // The lowest bit that is set belongs to the first byte that is zero; those above it may be wrong.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let (words, rest) = bytes.as_chunks::<8>();
    for (n, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let hits = zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\')));
        if hits != 0 {
            return Some(8 * n + hits.trailing_zeros() as usize / 8);
        }
    }
    rest.iter().position(|b| matches!(b, b'"' | b'\\')).map(|n| 8 * words.len() + n)
}

/// One message and where its members are.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    text: &'a str,
    members: &'a [Member],
}

impl<'a> Frame<'a> {
    /// The whole message.
    #[must_use]
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The value of a member of the message. Its end was found by counting brackets: whether it is JSON shows when it is read.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&'a str> {
        let text = |from, to| self.text.get(from..to).map_or("", str::trim_ascii);
        self.members
            .iter()
            .find(|member| {
                text(member.start, member.colon).strip_prefix('"').and_then(|key| key.strip_suffix('"')) == Some(name)
            })
            .map(|member| text(member.colon + 1, member.end))
    }
}

/// Reads whole messages from a stream. [`FrameReader::next`] is cancel safe.
#[derive(Debug)]
pub struct FrameReader<R> {
    stream: R,
    buffer: Vec<u8>,
    /// What of `buffer` the caller has had.
    start: usize,
    /// What of `buffer` the scanner has seen.
    scanned: usize,
    scanner: Scanner,
    limit: usize,
    received: u64,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads messages of at most `limit` bytes.
    pub fn new(stream: R, limit: usize) -> Self {
        Self { stream, buffer: Vec::new(), start: 0, scanned: 0, scanner: Scanner::default(), limit, received: 0 }
    }

    /// How many bytes have arrived; a change means that the peer is alive.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The next message.
    pub async fn next(&mut self) -> Result<Frame<'_>, FrameError> {
        let frame = self.find().await?;
        self.start = frame.end;
        let text = std::str::from_utf8(&self.buffer[frame]).map_err(|_| FrameError::NotText)?;
        Ok(self.scanner.frame(text))
    }

    async fn find(&mut self) -> Result<Range<usize>, FrameError> {
        loop {
            if let Some(n) = self.scanner.scan(&self.buffer[self.scanned..])? {
                self.scanned += n;
                return Ok(self.start..self.scanned);
            }
            self.scanned = self.buffer.len();
            self.make_room();
            if self.buffer.len() > self.limit {
                return Err(FrameError::TooLarge { limit: self.limit });
            }
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) => return Err(FrameError::Closed { inside: self.scanner.inside() }),
                Ok(n) => self.received += n as u64,
                Err(error) => return Err(FrameError::Io(error)),
            }
        }
    }

    fn make_room(&mut self) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
            if self.buffer.capacity() > KEEP_CAPACITY && self.buffer.len() < READ_CHUNK {
                self.buffer.shrink_to(READ_CHUNK);
            }
        }
        if self.buffer.capacity() - self.buffer.len() < READ_CHUNK {
            // By halves: doubling would put the peak of a large snapshot at three times its size while it is copied.
            self.buffer.reserve_exact(READ_CHUNK + self.buffer.len() / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// Hands out one piece per read, whatever room there is.
    struct Pieces(std::collections::VecDeque<Vec<u8>>);

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            buf: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            if let Some(mut piece) = self.0.pop_front() {
                let rest = piece.split_off(piece.len().min(buf.remaining()));
                buf.put_slice(&piece);
                if !rest.is_empty() {
                    self.0.push_front(rest);
                }
            }
            std::task::Poll::Ready(Ok(()))
        }
    }

    async fn read_all(pieces: Vec<Vec<u8>>, limit: usize) -> (Vec<Value>, FrameError) {
        let mut reader = FrameReader::new(Pieces(pieces.into()), limit);
        let mut messages = Vec::new();
        loop {
            match reader.next().await {
                Ok(frame) => {
                    let message: Value = serde_json::from_str(frame.text()).unwrap();
                    for (name, value) in message.as_object().unwrap() {
                        // A name with an escape is none of JSON-RPC's.
                        if serde_json::to_string(name).unwrap().len() == name.len() + 2 {
                            assert_eq!(serde_json::from_str::<Value>(frame.member(name).unwrap()).unwrap(), *value);
                        }
                    }
                    messages.push(message);
                }
                Err(error) => return (messages, error),
            }
        }
    }

    fn blocking<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    fn messages() -> impl Strategy<Value = Vec<Value>> {
        let text = prop_oneof![Just("plain".to_string()), Just("{[\"\\\u{e9}\n".to_string()), any::<String>()];
        let message = prop::collection::vec(text, 0..4)
            .prop_map(|texts| json!({"id": texts.len(), "params": [texts.clone(), {"\"}": texts}], "x": {}}));
        prop::collection::vec(message, 1..6)
    }

    proptest! {
        #[test]
        fn messages_survive_any_split_and_any_join(messages in messages(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20), blank in 0usize..3) {
            let mut bytes = Vec::new();
            for message in &messages {
                bytes.extend_from_slice(&b" \n\t"[..blank]);
                bytes.extend_from_slice(&serde_json::to_vec(message).unwrap());
            }
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            cuts.dedup();
            let pieces = cuts.windows(2).map(|w| bytes[w[0]..w[1]].to_vec()).collect();
            let (read, end) = blocking(read_all(pieces, usize::MAX));
            prop_assert_eq!(read, messages);
            prop_assert!(matches!(end, FrameError::Closed { inside: false }), "{}", end);
        }

        #[test]
        fn a_byte_at_a_time_is_the_same_as_all_at_once(messages in messages()) {
            let bytes: Vec<u8> = messages.iter().flat_map(|m| serde_json::to_vec(m).unwrap()).collect();
            let (read, _) = blocking(read_all(bytes.iter().map(|b| vec![*b]).collect(), usize::MAX));
            prop_assert_eq!(read, messages);
        }

        #[test]
        fn no_bytes_make_the_scanner_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Scanner::default().scan(&bytes);
        }
    }

    #[test]
    fn a_message_cut_short_is_told_from_a_clean_end() {
        let (_, end) = blocking(read_all(vec![b"{\"id\":1".to_vec()], 100));
        assert_eq!(end.to_string(), "connection closed by the peer in the middle of a message");
    }

    #[test]
    fn garbage_is_an_error_at_its_first_byte() {
        let (read, end) = blocking(read_all(vec![b"{}HTTP/1.1 400".to_vec()], 100));
        assert_eq!((read.len(), end.to_string().as_str()), (1, "expected a JSON object, found byte 0x48"));
    }

    #[test]
    fn a_message_past_the_limit_ends_the_stream_before_it_is_complete() {
        let pieces = std::iter::repeat_n(vec![b'['; 64], 100);
        let (_, end) = blocking(read_all(std::iter::once(b"{\"a\":".to_vec()).chain(pieces).collect(), 1000));
        assert!(matches!(end, FrameError::TooLarge { limit: 1000 }), "{end}");
    }
}
