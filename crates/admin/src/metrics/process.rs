//! Metrics of the process: memory, CPU time, open files as the kernel reports them, and tasks of the runtime. Read when Prometheus scrapes.

use std::fs;

use prometheus::{Counter, Gauge, IntGauge};
use server::memory_limit;
use tikv_jemalloc_ctl::{epoch, stats};
use xds::Register;

use super::ExporterSettings;

pub(crate) struct ProcessMetrics {
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
}

const CPU_REQUEST: &str =
    "CPU request of the container in cores: `MELTEMI_CPU_REQUEST`, else the CPUs that this process may use";
const MEMORY_LIMIT: &str =
    "memory limit: the least of `MELTEMI_MEMORY_LIMIT`, that of the container and the memory of the machine";

impl ProcessMetrics {
    pub(crate) fn register(on: &Register, settings: &ExporterSettings) -> prometheus::Result<ProcessMetrics> {
        let started = on.add(
            "gauge",
            Gauge::new("process_start_time_seconds", "start time of the process, in seconds since 1970")?,
        )?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        started.set(now.as_secs_f64());
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let request = on.add("gauge", Gauge::new("meltemi_cpu_request_cores", CPU_REQUEST)?)?;
        request.set(settings.cpu_request.unwrap_or(cpus as f64));
        let memory = on.gauge("meltemi_memory_limit_bytes", MEMORY_LIMIT)?;
        set(&memory, memory_limit(settings.memory_limit));
        let cpu = Counter::new("process_cpu_seconds_total", "user and system CPU time of the process")?;
        Ok(ProcessMetrics {
            cpu_seconds: on.add("counter", cpu)?,
            resident: on.gauge("process_resident_memory_bytes", "resident memory of the process")?,
            virtual_memory: on.gauge("process_virtual_memory_bytes", "virtual memory of the process")?,
            open_files: on.gauge("process_open_fds", "open file descriptors")?,
            max_files: on.gauge("process_max_fds", "limit of open file descriptors")?,
            threads: on.gauge("process_threads", "threads of the process. Not in istiod")?,
            tasks: on.gauge("meltemi_tasks", "asynchronous tasks that have not ended; each connection has one")?,
            goroutines: on.gauge(
                "go_goroutines",
                "asynchronous tasks that have not ended, as `meltemi_tasks`, under the name that Go dashboards use",
            )?,
            heap: on.gauge("go_memstats_heap_alloc_bytes", "allocated memory, as the allocator counts it")?,
            heap_held: on
                .gauge("go_memstats_heap_inuse_bytes", "pages with allocated memory, as the allocator counts them")?,
            stacks: on.gauge("go_memstats_stack_inuse_bytes", "stack of the main thread")?,
        })
    }

    pub(crate) fn resident(&self) -> i64 {
        self.resident.get()
    }

    /// Where /proc cannot be read, the last values stay.
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
        // The figures of the allocator are cached until its epoch advances.
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

/// USER_HZ, which is 100 on every architecture that we build for.
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn registered() -> ProcessMetrics {
        let on = Register::new(prometheus::Registry::new());
        ProcessMetrics::register(&on, &ExporterSettings::default()).unwrap()
    }

    #[test]
    fn cpu_time_is_found_behind_a_hostile_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 3 0 99 1000 200";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("7 (x) S"), None);
    }

    #[test]
    fn this_process_uses_memory_and_files() {
        let process = registered();
        process.observe();
        assert!(process.resident.get() > 0 && process.virtual_memory.get() >= process.resident.get());
        assert!(process.open_files.get() > 0 && process.max_files.get() >= process.open_files.get());
        assert!(process.threads.get() > 0);
        assert!(process.heap.get() > 0 && process.heap_held.get() >= process.heap.get());
        assert!(process.stacks.get() > 0 && memory_limit(None).is_some_and(|limit| limit > process.resident.get()));
    }

    #[tokio::test]
    async fn tasks_are_counted_while_they_live() {
        let process = registered();
        let task = tokio::spawn(std::future::pending::<()>());
        process.observe();
        let with = process.tasks.get();
        assert_eq!(process.goroutines.get(), with, "the same under the name that Go dashboards use");
        task.abort();
        task.await.unwrap_err();
        process.observe();
        assert_eq!(process.tasks.get(), with - 1);
        assert_eq!(process.goroutines.get(), with - 1);
    }
}
