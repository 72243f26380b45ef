//! The floor: a socket and as little as one can do with it.

use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ovsdb_client::codec::Scanner;
use ovsdb_client::{Op, Row, Uuid};
use serde_json::json;

use super::rows::{self, LoadBalancer};

const DATABASE: &str = "OVN_Northbound";

pub(crate) struct Raw {
    socket: UnixStream,
    scanner: Scanner,
    chunk: Vec<u8>,
    /// The part of `chunk` that belongs to messages that nobody has asked for yet.
    rest: Range<usize>,
}

impl Raw {
    pub(crate) fn connect(socket: &Path) -> Result<Self> {
        let socket = UnixStream::connect(socket)?;
        Ok(Self { socket, scanner: Scanner::default(), chunk: vec![0; 256 * 1024], rest: 0..0 })
    }

    pub(crate) fn monitor_request(tables: &[(&str, &[&str])]) -> Vec<u8> {
        let tables: serde_json::Map<_, _> =
            tables.iter().map(|(table, columns)| ((*table).to_owned(), json!([{ "columns": columns }]))).collect();
        request("monitor_cond_since", &json!([DATABASE, "raw", tables, Uuid::nil()]))
    }

    pub(crate) fn try_clone(&self) -> Result<UnixStream> {
        Ok(self.socket.try_clone()?)
    }

    pub(crate) fn send(&mut self, request: &[u8]) -> Result<()> {
        Ok(self.socket.write_all(request)?)
    }

    /// What a replica asks before it asks for its tables.
    pub(crate) fn handshake() -> Vec<Vec<u8>> {
        let columns = json!({"columns": ["name", "model", "connected", "leader", "cid"]});
        let requests = [
            ("list_dbs", json!([])),
            ("set_db_change_aware", json!([true])),
            ("monitor_cond", json!(["_Server", "server", {"Database": [columns]}])),
            ("get_schema", json!([DATABASE])),
        ];
        requests.map(|(method, params)| request(method, &params)).into()
    }

    pub(crate) fn echo_request() -> Vec<u8> {
        request("echo", &json!([]))
    }

    pub(crate) fn transact_request(ops: &[Op]) -> Result<Vec<u8>> {
        let ops = serde_json::to_string(ops)?;
        let ops = ops.strip_prefix('[').context("operations are a list")?;
        Ok(format!(r#"{{"id":0,"method":"transact","params":["{DATABASE}",{ops}}}"#).into_bytes())
    }

    /// Sends a request and reads one message.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        self.socket.write_all(request)?;
        self.read(1)
    }

    /// Sends a request and reads as many messages.
    pub(crate) fn exchange_for(&mut self, request: &[u8], messages: usize) -> Result<Vec<u8>> {
        self.socket.write_all(request)?;
        self.read(messages)
    }

    /// Sends a request and reads replies of known length.
    pub(crate) fn exchange_of(&mut self, request: &[u8], length: usize) -> Result<Vec<u8>> {
        self.socket.write_all(request)?;
        let mut message = vec![0; length];
        self.socket.read_exact(&mut message)?;
        Ok(message)
    }

    /// Sends a transaction and reads until it is answered, whatever else comes before.
    pub(crate) fn transact(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        self.send(request)?;
        self.read_until(br#""error""#)
    }

    /// Reads until a message has this in it.
    pub(crate) fn read_until(&mut self, word: &[u8]) -> Result<Vec<u8>> {
        loop {
            let message = self.read(1)?;
            if message.windows(word.len()).any(|here| here == word) {
                return Ok(message);
            }
        }
    }

    /// Reads as many messages.
    pub(crate) fn read(&mut self, messages: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for _ in 0..messages {
            self.message(&mut bytes)?;
        }
        Ok(bytes)
    }

    fn message(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        loop {
            let rest = &self.chunk[self.rest.clone()];
            let end = self.scanner.scan(rest)?;
            bytes.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
            if let Some(end) = end {
                self.rest.start += end;
                return Ok(());
            }
            let length = self.socket.read(&mut self.chunk)?;
            ensure!(length > 0, "the server hung up");
            self.rest = 0..length;
        }
    }
}

fn request(method: &str, params: &serde_json::Value) -> Vec<u8> {
    json!({"id": 0, "method": method, "params": params}).to_string().into_bytes()
}

/// A monitor in a thread of its own that notes when each update arrives.
pub(crate) struct Watch {
    arrivals: mpsc::Receiver<Instant>,
    socket: UnixStream,
}

impl Watch {
    pub(crate) fn start(socket: &Path) -> Result<Self> {
        let mut raw = Raw::connect(socket)?;
        raw.exchange(&Raw::monitor_request(&[(LoadBalancer::TABLE, &rows::columns())]))?;
        let (sender, arrivals) = mpsc::channel();
        let socket = raw.try_clone()?;
        thread::spawn(move || while raw.read(1).is_ok() && sender.send(Instant::now()).is_ok() {});
        Ok(Self { arrivals, socket })
    }

    /// When the next update arrived.
    pub(crate) fn next(&self) -> Result<Instant> {
        self.arrivals.recv().context("the raw monitor ended")
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Ends the thread; there is nobody to tell if it has ended already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}
