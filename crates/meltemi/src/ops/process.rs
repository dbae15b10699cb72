//! The process as the kernel sees it: memory, CPU time, open files; and the tasks of its runtime. Read when somebody asks.

use std::fs;

use prometheus::{Counter, Gauge, IntGauge, Registry};

pub(crate) struct Process {
    cpu_seconds: Counter,
    resident: IntGauge,
    virtual_memory: IntGauge,
    open_files: IntGauge,
    max_files: IntGauge,
    threads: IntGauge,
    tasks: IntGauge,
}

impl Process {
    pub(crate) fn register(registry: &Registry) -> prometheus::Result<Process> {
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            prometheus::Result::Ok(gauge)
        };
        let cpu_seconds = Counter::new("process_cpu_seconds_total", "CPU time used by the process.")?;
        registry.register(Box::new(cpu_seconds.clone()))?;
        let started = Gauge::new("process_start_time_seconds", "When the process started, in seconds since 1970.")?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        started.set(now.as_secs_f64());
        registry.register(Box::new(started))?;
        Ok(Process {
            cpu_seconds,
            resident: gauge("process_resident_memory_bytes", "Memory of the process that is in RAM.")?,
            virtual_memory: gauge("process_virtual_memory_bytes", "Address space of the process.")?,
            open_files: gauge("process_open_fds", "Open file descriptors.")?,
            max_files: gauge("process_max_fds", "Limit of open file descriptors.")?,
            threads: gauge("process_threads", "Threads of the process.")?,
            tasks: gauge("meltemi_tasks", "Asynchronous tasks that have not ended.")?,
        })
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
        set(&self.tasks, tasks.and_then(|count| i64::try_from(count).ok()));
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
        let process = Process::register(&Registry::new()).unwrap();
        process.observe();
        assert!(process.resident.get() > 0 && process.virtual_memory.get() >= process.resident.get());
        assert!(process.open_files.get() > 0 && process.max_files.get() >= process.open_files.get());
        assert!(process.threads.get() > 0);
    }

    #[tokio::test]
    async fn tasks_are_counted_while_they_live() {
        let process = Process::register(&Registry::new()).unwrap();
        let task = tokio::spawn(std::future::pending::<()>());
        process.observe();
        let with = process.tasks.get();
        task.abort();
        task.await.unwrap_err();
        process.observe();
        assert_eq!(process.tasks.get(), with - 1);
    }
}
