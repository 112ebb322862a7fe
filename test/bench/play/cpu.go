package play

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU time in /proc, on all systems that have it.
const tick = 10 * time.Millisecond

// cpuTimes is what the parts have used so far, by name; empty where the system
// does not say.
func (w *World) cpuTimes() map[string]time.Duration {
	pids := map[string][]int{
		"apiserver": {w.cluster.APIServer.PID()},
		"etcd":      {w.cluster.Etcd.PID()},
		"clients":   {os.Getpid()},

		"controller-manager": {w.cluster.ControllerManager.PID()},
	}
	for _, m := range w.cluster.Managers {
		if m.Running() {
			pids["managers"] = append(pids["managers"], m.PID())
		}
	}
	times := map[string]time.Duration{}
	for name, of := range pids {
		for _, pid := range of {
			if used, ok := cpuTime(pid); ok {
				times[name] += used
			}
		}
	}
	return times
}

// cpuTime is what a process has used so far, in user and system mode: fields 14
// and 15 of /proc/PID/stat (proc_pid_stat(5)).
func cpuTime(pid int) (time.Duration, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	_, after, _ := strings.Cut(string(stat), ") ") // behind the name, which may have blanks
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0, false
	}
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return time.Duration(user+system) * tick, err == nil && err2 == nil
}

// spent is what the parts have used since, in milliseconds for each request.
func (w *World) spent(since map[string]time.Duration, requests int) map[string]float64 {
	each := map[string]float64{}
	for name, now := range w.cpuTimes() {
		if before, ok := since[name]; ok && requests > 0 {
			each[name] = float64((now - before).Microseconds()) / 1000 / float64(requests)
		}
	}
	return each
}
