//! The memory of this process and its limit, as the kernel reports them.

use std::fs;
use std::io::Read;

use nix::unistd::{SysconfVar, sysconf};

/// Resident memory without pages of files, which the kernel can reclaim.
pub(crate) fn anonymous_memory() -> Option<i64> {
    // `statm` is cheaper than `status`, and is read every second.
    let mut text = [0; 128];
    let read = fs::File::open("/proc/self/statm").ok()?.read(&mut text).ok()?;
    let mut pages = str::from_utf8(&text[..read]).ok()?.split(' ').skip(1).map(str::parse::<i64>);
    let (resident, of_files) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some((resident - of_files) * sysconf(SysconfVar::PAGE_SIZE).ok()??)
}

/// The least of: the limit of the settings, that of the container (cgroup v2 or v1), the memory of the machine.
pub fn memory_limit(configured: Option<i64>) -> Option<i64> {
    let number = |file: &str| fs::read_to_string(file).ok()?.trim().parse::<i64>().ok();
    let container =
        number("/sys/fs/cgroup/memory.max").or_else(|| number("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    let machine = total_memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
    configured.into_iter().chain(container).chain(machine).min()
}

fn total_memory(meminfo: &str) -> Option<i64> {
    let kilobytes = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.split_whitespace().next()?;
    Some(kilobytes.parse::<i64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_counts() {
        assert_eq!(memory_limit(Some(1)), Some(1));
        assert!(memory_limit(None).is_some());
        assert_eq!(memory_limit(Some(i64::MAX)), memory_limit(None));
    }
}
