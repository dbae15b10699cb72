//! The process as the kernel sees it: memory, CPU time, open files; and the tasks of its runtime. Read when somebody asks.

use std::fs;
use std::io::Read;

use nix::unistd::{SysconfVar, sysconf};
use prometheus::{Counter, Gauge, IntGauge};
use tikv_jemalloc_ctl::{epoch, stats};
use xds::Register;

pub(crate) struct Process {
    cpu_seconds: Counter,
    resident: IntGauge,
    virtual_memory: IntGauge,
    open_files: IntGauge,
    max_files: IntGauge,
    threads: IntGauge,
    tasks: IntGauge,
    goroutines: IntGauge,
    heap: IntGauge,
    heap_held: IntGauge,
    stacks: IntGauge,
    request: Gauge,
}

const CPU_REQUEST: &str =
    "processors that were asked for: `MELTEMI_CPU_REQUEST`, else as many as there are for this process";
const MEMORY_LIMIT: &str = "memory that this process may have: the limit of its container, else the machine's";

impl Process {
    pub(crate) fn register(on: &Register) -> prometheus::Result<Process> {
        let started =
            on.add("gauge", Gauge::new("process_start_time_seconds", "when the process started, since 1970")?)?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        started.set(now.as_secs_f64());
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let request = on.add("gauge", Gauge::new("meltemi_cpu_request_cores", CPU_REQUEST)?)?;
        request.set(cpus as f64);
        let memory = on.gauge("meltemi_memory_limit_bytes", MEMORY_LIMIT)?;
        set(&memory, memory_limit());
        let cpu = Counter::new("process_cpu_seconds_total", "CPU time used")?;
        Ok(Process {
            cpu_seconds: on.add("counter", cpu)?,
            resident: on.gauge("process_resident_memory_bytes", "memory in RAM")?,
            virtual_memory: on.gauge("process_virtual_memory_bytes", "address space")?,
            open_files: on.gauge("process_open_fds", "open file descriptors")?,
            max_files: on.gauge("process_max_fds", "their limit")?,
            threads: on.gauge("process_threads", "threads. Not in istiod")?,
            tasks: on.gauge(
                "meltemi_tasks",
                "asynchronous tasks that have not ended, among them those of every connection",
            )?,
            goroutines: on.gauge("go_goroutines", "the same, under the name that dashboards ask for")?,
            heap: on.gauge("go_memstats_heap_alloc_bytes", "memory in use, as the allocator counts it")?,
            heap_held: on
                .gauge("go_memstats_heap_inuse_bytes", "pages with memory in use, as the allocator counts them")?,
            request,
            stacks: on.gauge("go_memstats_stack_inuse_bytes", "the main thread's stack")?,
        })
    }

    /// What the container was promised, in processors.
    pub(crate) fn requested(&self, cores: f64) {
        self.request.set(cores);
    }

    pub(crate) fn resident(&self) -> i64 {
        self.resident.get()
    }

    /// Where /proc does not answer, the last values stay.
    pub(crate) fn observe(&self) {
        if let Some(seconds) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(cpu_seconds) {
            self.cpu_seconds.inc_by((seconds - self.cpu_seconds.get()).max(0.0));
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        set(&self.resident, line(&status, "VmRSS:").map(|kilobytes| kilobytes * 1024));
        set(&self.virtual_memory, line(&status, "VmSize:").map(|kilobytes| kilobytes * 1024));
        set(&self.threads, line(&status, "Threads:"));
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        set(&self.max_files, line(&limits, "Max open files"));
        let open = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
        set(&self.open_files, open.and_then(|count| i64::try_from(count).ok()));
        let tasks = tokio::runtime::Handle::try_current().ok().map(|runtime| runtime.metrics().num_alive_tasks());
        let tasks = tasks.and_then(|count| i64::try_from(count).ok());
        set(&self.tasks, tasks);
        set(&self.goroutines, tasks);
        set(&self.stacks, line(&status, "VmStk:").map(|kilobytes| kilobytes * 1024));
        // The allocator's numbers stand still until it is told to look.
        if epoch::advance().is_ok() {
            let bytes = |read: Result<usize, _>| read.ok().and_then(|bytes| i64::try_from(bytes).ok());
            set(&self.heap, bytes(stats::allocated::read()));
            set(&self.heap_held, bytes(stats::active::read()));
        }
    }
}

fn set(gauge: &IntGauge, value: Option<i64>) {
    if let Some(value) = value {
        gauge.set(value);
    }
}

/// The first number of the line that begins with `key`.
fn line(text: &str, key: &str) -> Option<i64> {
    text.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace().next()?.parse().ok()
}

/// User and system time: fields 14 and 15. Field 2 is the name in parentheses and may hold anything, so count from its end.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

/// Memory that the system could not get back without ending us: what is mapped from files does not count.
pub(crate) fn own_memory() -> Option<i64> {
    // Not from `status`, for which the kernel writes a page of text: it is asked for every second.
    let mut text = [0; 128];
    let read = fs::File::open("/proc/self/statm").ok()?.read(&mut text).ok()?;
    let mut pages = str::from_utf8(&text[..read]).ok()?.split(' ').skip(1).map(str::parse::<i64>);
    let (resident, of_files) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some((resident - of_files) * sysconf(SysconfVar::PAGE_SIZE).ok()??)
}

/// Of the container, as the second or the first version of control groups tells it; else of the machine.
pub(crate) fn memory_limit() -> Option<i64> {
    let number = |file: &str| fs::read_to_string(file).ok()?.trim().parse::<i64>().ok();
    let container =
        number("/sys/fs/cgroup/memory.max").or_else(|| number("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    let machine =
        line(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal:").map(|kilobytes| kilobytes * 1024);
    match (container, machine) {
        (Some(container), Some(machine)) => Some(container.min(machine)),
        (container, machine) => container.or(machine),
    }
}

/// USER_HZ, which Linux shows to programs on every architecture that we build for.
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_a_hostile_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 3 0 99 1000 200";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("7 (x) S"), None);
    }

    #[test]
    fn this_process_uses_memory_and_files() {
        let process = Process::register(&Register::new(prometheus::Registry::new())).unwrap();
        process.observe();
        assert!(process.resident.get() > 0 && process.virtual_memory.get() >= process.resident.get());
        assert!(process.open_files.get() > 0 && process.max_files.get() >= process.open_files.get());
        assert!(process.threads.get() > 0);
        assert!(process.heap.get() > 0 && process.heap_held.get() >= process.heap.get());
        assert!(process.stacks.get() > 0 && memory_limit().is_some_and(|limit| limit > process.resident.get()));
    }

    #[tokio::test]
    async fn tasks_are_counted_while_they_live() {
        let process = Process::register(&Register::new(prometheus::Registry::new())).unwrap();
        let task = tokio::spawn(std::future::pending::<()>());
        process.observe();
        let with = process.tasks.get();
        task.abort();
        task.await.unwrap_err();
        process.observe();
        assert_eq!(process.tasks.get(), with - 1);
    }
}
