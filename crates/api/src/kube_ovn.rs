//! kube-ovn's objects, as far as we read them.
//!
//! The types can be read but not serialised, so that `create` and `replace` do not compile: an object written back from
//! them would lose every field that is not listed here. What we do write has a type of its own with the fields that we own
//! and no other ([`OvnEipApply`]), for server-side apply.
//!
//! Reading takes what kube-ovn really stores: a `status` or `spec` that is not there, `null` for an empty list, `""` for an
//! address that is not assigned yet, and any field we never heard of.

mod lenient;
mod ovn_eip;
mod subnet;
mod vpc;

pub use ovn_eip::{OvnEip, OvnEipApply, OvnEipApplySpec, OvnEipSpec, OvnEipStatus, OvnEipType};
pub use subnet::{Subnet, SubnetSpec};
pub use vpc::{PolicyRoute, StaticRoute, Vpc, VpcSpec, VpcStatus};

const GROUP: &str = "kubeovn.io";
const VERSION: &str = "v1";
const API_VERSION: &str = "kubeovn.io/v1";

/// `kube::Resource` for a cluster-scoped kind of kube-ovn.
macro_rules! resource {
    ($kind:ident, $plural:literal) => {
        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = kube::core::ClusterResourceScope;

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                crate::kube_ovn::GROUP.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                crate::kube_ovn::VERSION.into()
            }
            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($kind).into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &kube::core::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
use resource;
