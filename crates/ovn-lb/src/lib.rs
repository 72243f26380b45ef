//! Services of type LoadBalancer as OVN load balancers.
#![allow(dead_code, reason = "the controller that uses these parts comes next")]

mod commit;
mod desired;
mod error;
mod marks;
mod metrics;
mod northbound;
mod plan;
#[cfg(test)]
mod testing;
mod view;
