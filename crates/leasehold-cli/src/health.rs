//! `leasehold health`: asks a worker whether its loop lives. For probes that run a command.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use leasehold::SystemClock;
use leasehold::core::Clock as _;
use leasehold::core::time::short_length;
use serde::Serialize;

use crate::arguments::Common;
use crate::config::{Config, WorkerFlags};
use crate::failure::{Answer, Failure};
use crate::screen::{SCHEMA, Screen};
use crate::when;

/// Ask a worker's health port whether its loop lives: 0 if it does, 1 if not.
///
/// Without --url or --address the port is asked that the settings give the worker: `LEASEHOLD_HEALTH`,
/// else health in the section `[worker]` of the file.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "JSON: {\"schema\", \"alive\", \"status\", \"text\"}.")]
pub(crate) struct Arguments {
    /// Where to ask, such as `http://127.0.0.1:9464/healthz`.
    #[arg(long, value_name = "URL", env = "LEASEHOLD_HEALTH_URL")]
    url: Option<String>,

    /// As --url, by host and port alone.
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "LEASEHOLD_HEALTH_ADDRESS",
        conflicts_with = "url"
    )]
    address: Option<String>,

    /// How long to wait for the whole answer.
    #[arg(
        long,
        value_name = "DURATION",
        env = "LEASEHOLD_HEALTH_TIMEOUT",
        default_value = "2s"
    )]
    timeout: String,
}

/// More of an answer than this is not from a worker.
const ANSWER_BYTES_MAX: usize = 8 << 10;

pub(crate) fn run(
    arguments: &Arguments,
    common: &Common,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let place = match (&arguments.url, &arguments.address) {
        (Some(url), _) => Place::of_url(url)?,
        (None, Some(address)) => Place::of_address(address)?,
        (None, None) => Place::of_settings(common)?,
    };
    let timeout = when::duration("--timeout", &arguments.timeout)?;
    if timeout.is_zero() {
        return Err(Failure::usage("--timeout is zero")
            .because("no answer comes in no time")
            .remedy("give it a second or two, as in --timeout 2s"));
    }
    let (status, text) = place.ask(timeout)?;
    let is_alive = status == 200;
    if screen.is_json() {
        #[derive(Serialize)]
        struct Document<'a> {
            schema: u32,
            alive: bool,
            status: u16,
            text: &'a str,
        }
        screen.object(&Document {
            schema: SCHEMA,
            alive: is_alive,
            status,
            text: text.trim(),
        })?;
    } else {
        screen.text(&crate::screen::plain(text.trim()))?;
    }
    Ok(if is_alive {
        Answer::Yes
    } else {
        Answer::Broken
    })
}

/// Where to ask.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    authority: String,
    path: String,
}

impl Place {
    fn of_url(url: &str) -> Result<Self, Failure> {
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(Failure::usage("--url is not a plain http URL")
                .because("a worker's health port speaks plain HTTP")
                .remedy("write it as http://127.0.0.1:9464/healthz"));
        };
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, format!("/{path}")),
            None => (rest, String::new()),
        };
        let path = if path.len() <= 1 {
            "/healthz".to_owned()
        } else {
            path
        };
        let is_line = path.bytes().all(|b| b.is_ascii_graphic());
        if authority.contains('@') || !is_line {
            return Err(
                Failure::usage("--url holds more than a host, a port and a path")
                    .because("user names and white space are not sent")
                    .remedy("write it as http://127.0.0.1:9464/healthz"),
            );
        }
        let authority = if has_port(authority) {
            authority.to_owned()
        } else {
            format!("{authority}:80")
        };
        Ok(Self { authority, path })
    }

    fn of_address(address: &str) -> Result<Self, Failure> {
        if !has_port(address) || address.contains('/') {
            return Err(
                Failure::usage(format!("--address {address:?} is no host and port"))
                    .because("both are needed")
                    .remedy("write it as 127.0.0.1:9464, worker.internal:9464 or [::1]:9464"),
            );
        }
        Ok(Self {
            authority: address.to_owned(),
            path: "/healthz".to_owned(),
        })
    }

    /// Where the worker of the settings listens.
    fn of_settings(common: &Common) -> Result<Self, Failure> {
        let flags = WorkerFlags::of_environment().map_err(|error| {
            Failure::usage("a variable of the worker cannot be read")
                .because(error.to_string().trim())
                .remedy("correct it, or give --address 127.0.0.1:9464")
        })?;
        let config = Config::load_for_worker(common, &flags)?;
        let unnamed = |why: &str| {
            Failure::usage("no worker is named").because(why).remedy(
                "give --address 127.0.0.1:9464 or --url http://127.0.0.1:9464/healthz, or set \
                 worker.health",
            )
        };
        let health = config.worker.settings.health;
        let mut address = health.ok_or_else(|| {
            unnamed("neither --address nor --url is given, and worker.health is not set")
        })?;
        if address.port() == 0 {
            return Err(unnamed(
                "worker.health has port 0, which picks a free port at each start",
            ));
        }
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        Ok(Self {
            authority: address.to_string(),
            path: "/healthz".to_owned(),
        })
    }

    /// Sends one request and reads its answer, all within the time.
    fn ask(&self, timeout: Duration) -> Result<(u16, String), Failure> {
        let clock = SystemClock;
        let deadline = clock.elapsed() + timeout;
        // A timeout of zero would mean "for ever" to the socket.
        let left = || {
            deadline
                .since(clock.elapsed())
                .max(Duration::from_millis(1))
        };
        let dead = |why: std::io::Error| {
            let why = match why.kind() {
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                    format!("no answer within {}", shown(timeout))
                }
                _ => why.to_string(),
            };
            Failure::failed(format!("the worker at {} does not answer", self.authority))
                .because(why)
                .remedy("check that it runs, and that its `health` setting is this address")
        };
        let addresses = self.authority.to_socket_addrs().map_err(dead)?;
        let mut last = std::io::ErrorKind::NotFound.into();
        let mut stream = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, left()) {
                Ok(connected) => {
                    stream = Some(connected);
                    break;
                }
                Err(error) => last = error,
            }
        }
        let mut stream = stream.ok_or_else(|| dead(last))?;
        stream.set_write_timeout(Some(left())).map_err(dead)?;
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.path, self.authority
        );
        stream.write_all(request.as_bytes()).map_err(dead)?;
        let mut answer = Vec::new();
        let mut piece = [0; 1024];
        while answer.len() < ANSWER_BYTES_MAX {
            if clock.elapsed() >= deadline {
                return Err(dead(std::io::ErrorKind::TimedOut.into()));
            }
            stream.set_read_timeout(Some(left())).map_err(dead)?;
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => answer.extend_from_slice(&piece[..length]),
                Err(error) => return Err(dead(error)),
            }
        }
        read_answer(&String::from_utf8_lossy(&answer)).ok_or_else(|| {
            Failure::failed(format!("{} is no worker", self.authority))
                .because("its answer is not HTTP")
                .remedy("check the port")
        })
    }
}

fn has_port(authority: &str) -> bool {
    authority
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

fn shown(timeout: Duration) -> String {
    if timeout < Duration::from_secs(1) {
        format!("{}ms", timeout.as_millis())
    } else {
        short_length(timeout)
    }
}

/// The status and the body of an answer that ends with its connection.
fn read_answer(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let mut words = head.lines().next()?.split(' ');
    words
        .next()
        .filter(|version| version.starts_with("HTTP/"))?;
    let status = words.next()?.parse().ok()?;
    Some((status, body.to_owned()))
}

#[cfg(test)]
mod tests;
