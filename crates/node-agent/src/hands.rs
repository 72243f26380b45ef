//! What touches the node, with the deadline checked right before and right after each call: an agent that was stopped
//! and goes on must not bring back an address that another node has by now.

use std::net::IpAddr;
use std::time::Duration;

use groundcrew_core::leader::Moment;
use tokio::sync::watch;

use crate::authority::Authority;
use crate::frames::{announcement_to, announcements};
use crate::network::Uplink;
use crate::pace::Pace;
use crate::platform::{Platform, PlatformError};
use crate::timing::Timings;

/// A call that ended later than this after its check told the kernel too long a lifetime.
const LATE: Duration = Duration::from_millis(100);

/// Has the kernel keep the address as long as the authority allows. `None` where it allows nothing any more: then the
/// address is not on the interface.
pub(crate) fn show<P: Platform>(
    platform: &P,
    authority: &watch::Receiver<Authority>,
    timings: Timings,
    address: IpAddr,
    link: u32,
    new: bool,
) -> Result<Option<Moment>, PlatformError> {
    let authority = *authority.borrow();
    let before = platform.now();
    let Some(deadline) = authority.deadline(before) else { return Ok(None) };
    let Some(seconds) = timings.lifetime(before, deadline) else { return Ok(None) };
    platform.show(address, link, seconds, new)?;
    let after = platform.now();
    let until = after + Duration::from_secs(seconds.into());
    if deadline + LATE < until {
        platform.hide(address, link)?;
        return Ok(None);
    }
    Ok(Some(until))
}

/// Tells the gateway, then everybody as far as the pace allows. `false` where not everybody was told.
pub(crate) fn announce<P: Platform>(
    platform: &P,
    authority: &watch::Receiver<Authority>,
    pace: &Pace,
    address: IpAddr,
    uplink: &Uplink,
) -> Result<bool, PlatformError> {
    let (link, mac) = (uplink.link.index, uplink.link.mac);
    let may = || authority.borrow().deadline(platform.now()).is_some();
    if let Some(frame) = uplink.gateway.and_then(|gateway| announcement_to(address, mac, gateway))
        && may()
    {
        platform.send(link, &frame)?;
    }
    for frame in announcements(address, mac) {
        if !may() || !pace.admit(platform.now()) {
            return Ok(false);
        }
        platform.send(link, &frame)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;
    use crate::frames::Mac;
    use crate::network::{Link, Network};

    const LINK: u32 = 3;
    const TIMINGS: Timings = Timings::DEFAULT;

    /// A node with a memory, on which time passes only when told, also in the middle of a call.
    struct Machine {
        now: Mutex<Moment>,
        stops: Mutex<Vec<Duration>>,
        addresses: Mutex<BTreeMap<IpAddr, Moment>>,
        sent: Mutex<usize>,
    }

    impl Machine {
        fn new(now: Moment) -> Self {
            Self { now: Mutex::new(now), stops: Mutex::default(), addresses: Mutex::default(), sent: Mutex::default() }
        }

        /// The process stands still for so long within the next call.
        fn stop_in_next_call(&self, how_long: Duration) {
            self.stops.lock().unwrap().push(how_long);
        }

        fn call(&self) {
            let stop = self.stops.lock().unwrap().pop().unwrap_or_default();
            let mut now = self.now.lock().unwrap();
            *now = *now + stop;
        }

        fn has(&self, address: IpAddr) -> bool {
            let now = *self.now.lock().unwrap();
            self.addresses.lock().unwrap().get(&address).is_some_and(|until| now < *until)
        }
    }

    impl Platform for Machine {
        fn now(&self) -> Moment {
            *self.now.lock().unwrap()
        }
        fn network(&self) -> Result<Network, PlatformError> {
            Ok(Network::default())
        }
        fn ours(&self) -> Result<Vec<(IpAddr, u32)>, PlatformError> {
            Ok(self.addresses.lock().unwrap().keys().map(|address| (*address, LINK)).collect())
        }
        fn show(&self, address: IpAddr, _: u32, seconds: u32, _: bool) -> Result<(), PlatformError> {
            self.call();
            let until = self.now() + Duration::from_secs(seconds.into());
            self.addresses.lock().unwrap().insert(address, until);
            Ok(())
        }
        fn hide(&self, address: IpAddr, _: u32) -> Result<(), PlatformError> {
            self.addresses.lock().unwrap().remove(&address);
            Ok(())
        }
        fn send(&self, _: u32, _: &[u8]) -> Result<(), PlatformError> {
            self.call();
            *self.sent.lock().unwrap() += 1;
            Ok(())
        }
        async fn probe(&self, _: IpAddr, _: u32, _: Mac, _: Duration) -> Result<Option<Mac>, PlatformError> {
            Ok(None)
        }
        async fn filter(&self, _: String) -> Result<(), PlatformError> {
            Ok(())
        }
        async fn forget_udp(&self, _: IpAddr, _: Option<std::net::SocketAddr>) -> Result<(), PlatformError> {
            Ok(())
        }
    }

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    fn world() -> (Machine, watch::Sender<Authority>, watch::Receiver<Authority>) {
        let start = Moment::now();
        let mut authority = Authority::default();
        authority.renewed(TIMINGS.deadline(start), start);
        let (sender, receiver) = watch::channel(authority);
        (Machine::new(start), sender, receiver)
    }

    fn show_it(machine: &Machine, authority: &watch::Receiver<Authority>) -> Option<Moment> {
        show(machine, authority, TIMINGS, ADDRESS, LINK, true).unwrap()
    }

    #[test]
    fn an_agent_that_is_stopped_within_the_call_takes_the_address_away_again() {
        let (machine, _sender, authority) = world();
        assert!(show_it(&machine, &authority).is_some() && machine.has(ADDRESS));
        machine.stop_in_next_call(Duration::from_mins(1));
        assert_eq!(show_it(&machine, &authority), None);
        assert!(!machine.has(ADDRESS));
    }

    #[test]
    fn an_agent_that_is_resumed_after_its_end_shows_nothing() {
        let (machine, _sender, authority) = world();
        *machine.now.lock().unwrap() = machine.now() + Duration::from_secs(7);
        assert_eq!(show_it(&machine, &authority), None);
        assert!(machine.addresses.lock().unwrap().is_empty());
    }

    #[test]
    fn the_kernel_is_never_told_more_than_the_authority_has_left() {
        for late in (0..8_000).step_by(100).map(Duration::from_millis) {
            let (machine, _sender, authority) = world();
            let end = TIMINGS.deadline(machine.now());
            *machine.now.lock().unwrap() = machine.now() + late;
            if show_it(&machine, &authority).is_some() {
                assert!(machine.addresses.lock().unwrap()[&ADDRESS] <= end, "{late:?}");
            }
        }
    }

    #[test]
    fn announcing_ends_with_the_authority_and_not_after_it() {
        let (machine, _sender, authority) = world();
        let link = Link { index: LINK, name: "ens3".into(), mac: Mac([2; 6]), up: true };
        let uplink = Uplink { link, gateway: Some(([192, 0, 2, 1].into(), Mac([9; 6]))) };
        let pace = Pace::new(machine.now());
        assert!(announce(&machine, &authority, &pace, ADDRESS, &uplink).unwrap());
        assert_eq!(*machine.sent.lock().unwrap(), 3, "the gateway, and everybody in both forms");
        machine.stop_in_next_call(Duration::from_mins(1));
        assert!(!announce(&machine, &authority, &pace, ADDRESS, &uplink).unwrap());
        assert_eq!(*machine.sent.lock().unwrap(), 4);
    }
}
