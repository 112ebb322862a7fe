package play

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// tick is the unit of CPU time in /proc, on all systems that have it.
const tick = 10 * time.Millisecond

// cpuTimes returns the time that the parts have used so far, by name; empty if the
// system does not report it.
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
	for name, partPIDs := range pids {
		for _, pid := range partPIDs {
			if used, ok := cpuTime(pid); ok {
				times[name] += used
			}
		}
	}
	return times
}

// cpuTime returns the time that a process has used so far, in user and system mode: fields 14
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

// spent returns the time that the parts have used since, in milliseconds for each request.
func (w *World) spent(since map[string]time.Duration, requests int) map[string]float64 {
	each := map[string]float64{}
	for name, now := range w.cpuTimes() {
		if before, ok := since[name]; ok && requests > 0 {
			each[name] = float64((now - before).Microseconds()) / 1000 / float64(requests)
		}
	}
	return each
}

const (
	// restful bounds the time that the parts together use when they are at rest, measured
	// for so long at a time; awaited for a minute at most.
	restful     = 150 * time.Millisecond
	restfulLook = 500 * time.Millisecond
	restfulWait = time.Minute
)

// awaitIdle waits until the parts have done the work that they do by themselves: replicas
// that have just become ready still list objects that hand out nothing, which takes the API
// server longer with more objects.
func (w *World) awaitIdle(ctx context.Context) error {
	before := w.cpuTimes()
	err := wait.PollUntilContextTimeout(ctx, restfulLook, restfulWait, false, func(context.Context) (bool, error) {
		now, used := w.cpuTimes(), time.Duration(0)
		for name := range now {
			used += now[name] - before[name]
		}
		before = now
		return used <= restful, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		w.say("the machine is still busy after %v", restfulWait)
		return nil
	}
	return err
}
