//! Where the heap comes from. A list of ten thousand objects passes through tens of megabytes, and what stays of it lies
//! scattered in between: jemalloc puts things of one size together and gives back the pages that are left, glibc does not.

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static HEAP: Jemalloc = Jemalloc;

/// One arena: two threads hardly meet in it, and each would keep free pages of its own. A second until free pages go back to
/// the kernel, by a thread of its own, because nobody allocates in a process at rest.
/// `_RJEM_MALLOC_CONF` in the environment overrides it.
#[allow(unsafe_code, reason = "jemalloc reads its settings from a symbol of this name, before main")]
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS: Settings = Settings(c"narenas:1,background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0".as_ptr());

/// A `const char *`.
#[repr(transparent)]
struct Settings(*const std::ffi::c_char);

#[allow(unsafe_code, reason = "a raw pointer is not Sync")]
// SAFETY: it points to a constant, and nobody writes either.
unsafe impl Sync for Settings {}
