//! What the PTX of an entry must have. A module that passed is known by its hash, and by that of this file: a new check here runs on all of
//! them once.

use lowering::backend::nvptx::Arch;
use lowering::gpu::specialization::Specialization;
use lowering::mlir::Limit;

/// The lowest PTX versions with sm_80, with cache policies and hints on it, with copies that a predicate fills with zeros, with sm_90a, and with
/// `st.async` and vector `red.add` there.
const VERSIONS: [&str; 5] = ["7.0", "7.4", "7.5", "8.0", "8.1"];

/// The version of [`VERSIONS`] that a module should have.
fn version(capability: u32, ptx: &str) -> &'static str {
    let hints = ptx.contains("createpolicy") || ptx.contains("cache_hint");
    match (capability, hints) {
        (90, _)
            if ["st.async", ".global.add.v", ".global.add.noftz.v"].iter().any(|new| ptx.contains(new)) =>
        {
            VERSIONS[4]
        }
        (90, _) => VERSIONS[3],
        _ if ptx.contains("cp.async.c") => VERSIONS[2],
        (_, true) => VERSIONS[1],
        (_, false) => VERSIONS[0],
    }
}

/// Whether a module waits for the previous kernel before it accesses memory, and has no `ld.global.nc`; `None` where it
/// does not wait at all.
fn waits_first(ptx: &str) -> Option<bool> {
    let lines = || ptx.lines().map(str::trim_start);
    let wait = lines().position(|line| line.starts_with("griddepcontrol.wait"))?;
    // Declarations and parameters begin with a dot.
    let accesses_memory = |line: &str| line.contains(".global") && !line.starts_with('.');
    Some(!lines().take(wait).any(accesses_memory) && !lines().any(|line| line.contains(".nc.")))
}

/// A specialization of a variant.
pub struct Entry<'a> {
    pub name: &'a str,
    /// Of all specializations of the variant.
    pub names: &'a [String],
    pub specialization: &'a Specialization,
}

impl Entry<'_> {
    /// Its name in the ratchet.
    pub fn on(&self, arch: Arch) -> String {
        format!("{} {}", self.name, arch.name())
    }

    /// The registers that the kernel asks for.
    pub fn cap(&self) -> Option<u32> {
        self.specialization.plan.limit.and_then(Limit::registers)
    }

    /// Its function in the text of a module.
    pub fn own_text<'p>(&self, ptx: &'p str) -> &'p str {
        let own = ptx.split(".entry ").find(|text| text.starts_with(&format!("{}(", self.name)));
        own.unwrap_or_else(|| panic!("{} is in its module", self.name))
    }

    /// Checks the text of a module.
    pub fn check(&self, arch: Arch, ptx: &str) {
        let name = self.on(arch);
        let found = ptx.lines().find_map(|line| line.strip_prefix(".version ")).unwrap_or_default();
        assert_eq!(found, version(arch.capability, ptx), "{name}");
        let uses_pdl = self.specialization.plan.uses_pdl() && arch.has_pdl();
        assert_eq!(waits_first(ptx), uses_pdl.then_some(true), "{name}");
        let mut others = self.names.iter().filter(|other| *other != self.name);
        assert!(
            others.all(|other| !ptx.contains(&format!(".entry {other}("))),
            "{} is alone in its module",
            self.name
        );
        let cap = self.own_text(ptx).lines().find_map(|line| line.strip_prefix(".maxnreg "));
        let cap = cap.map(|cap| cap.parse::<u32>().expect("a number of registers"));
        assert_eq!(cap, self.cap(), "{name}: what the kernel asks for");
    }
}
