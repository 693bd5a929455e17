package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A call is a system call that reaches a file or directory: by a descriptor, or
// by a path below one.
type call struct {
	name    string
	fd      int // which argument is the descriptor; -1: none
	path    int // which is the path; -1: none
	changes bool
}

var calls = map[uint64]call{
	unix.SYS_WRITE: {"write", 0, -1, true}, unix.SYS_PWRITE64: {"pwrite64", 0, -1, true}, unix.SYS_FTRUNCATE: {"ftruncate", 0, -1, true},
	unix.SYS_FSYNC: {"fsync", 0, -1, true}, unix.SYS_FDATASYNC: {"fdatasync", 0, -1, true},
	unix.SYS_FCHMOD: {"fchmod", 0, -1, true}, unix.SYS_FCHOWN: {"fchown", 0, -1, true}, unix.SYS_FSETXATTR: {"fsetxattr", 0, -1, true},
	unix.SYS_OPENAT: {"openat", 0, 1, false}, unix.SYS_OPENAT2: {"openat2", 0, 1, false}, unix.SYS_MKDIRAT: {"mkdirat", 0, 1, true},
	unix.SYS_UNLINKAT: {"unlinkat", 0, 1, true}, unix.SYS_RENAMEAT: {"renameat", 0, 1, true}, unix.SYS_RENAMEAT2: {"renameat2", 0, 1, true},
	unix.SYS_FCHMODAT: {"fchmodat", 0, 1, true}, unix.SYS_FCHOWNAT: {"fchownat", 0, 1, true}, unix.SYS_UTIMENSAT: {"utimensat", 0, 1, true},
	unix.SYS_MKDIR: {"mkdir", -1, 0, true}, unix.SYS_RMDIR: {"rmdir", -1, 0, true}, unix.SYS_UNLINK: {"unlink", -1, 0, true}, unix.SYS_RENAME: {"rename", -1, 0, true},
	unix.SYS_READ: {"read", 0, -1, false}, unix.SYS_FSTAT: {"fstat", 0, -1, false}, unix.SYS_NEWFSTATAT: {"newfstatat", 0, 1, false},
	unix.SYS_FLISTXATTR: {"flistxattr", 0, -1, false}, unix.SYS_FLOCK: {"flock", 0, -1, false},
}

// A point is one system call of a traced program, below the directory that is
// watched.
type point struct {
	number  int
	call    call
	path    string
	length  uint64 // of a write
	creates bool   // an open that makes a file
}

func (p point) String() string { return fmt.Sprintf("%d, %s %s", p.number, p.call.name, p.path) }

// What befalls the program at a point.
type fate int

const (
	pass   fate = iota
	kill        // it and all that it started, before the call
	tear        // the same, after half of a write
	enospc      // the call fails as on a full disk
	eio         // as on a broken one
	erofs       // as on one that the kernel has made read-only
)

func (f fate) String() string {
	return []string{"nothing", "kill", "tear", "ENOSPC", "EIO", "EROFS"}[f]
}

var errnos = map[fate]unix.Errno{enospc: unix.ENOSPC, eio: unix.EIO, erofs: unix.EROFS}

// A tracer runs a program and decides at each of its points what becomes of it.
type tracer struct {
	watch   string
	decide  func(point) fate
	numbers int
	threads map[int]bool
	status  unix.WaitStatus
}

// run ends with the program and everything that it started.
func (tr *tracer) run(t *testing.T, argv, env []string, out *os.File) {
	t.Helper()
	runtime.LockOSThread() // ptrace is between threads
	defer runtime.UnlockOSThread()
	tr.threads, tr.numbers = map[int]bool{}, 0
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Env: env, Files: []uintptr{null.Fd(), out.Fd(), out.Fd()}, Sys: &syscall.SysProcAttr{Ptrace: true}})
	if err != nil {
		t.Fatal(err)
	}
	tr.threads[pid] = true
	first := true
	for len(tr.threads) > 0 {
		var ws unix.WaitStatus
		tid, err := unix.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatalf("waiting for the traced program: %v", err)
		}
		if ws.Exited() || ws.Signaled() {
			delete(tr.threads, tid)
			if tid == pid {
				tr.status = ws
			}
			continue
		}
		resume, pass := unix.PtraceCont, 0
		switch sig := ws.StopSignal(); {
		case first:
			first = false
			const options = unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACESECCOMP
			if err := unix.PtraceSetOptions(tid, options); err != nil {
				t.Fatal(err)
			}
		case sig == unix.SIGTRAP|0x80: // half of a write is done
			tr.kill()
		case sig == unix.SIGTRAP && ws.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
			if tr.syscall(t, tid) == tear {
				resume = unix.PtraceSyscall
			}
		case sig == unix.SIGSTOP && !tr.threads[tid], sig == unix.SIGTRAP: // a new thread or program
		default:
			pass = int(sig)
		}
		tr.threads[tid] = true
		_ = resume(tid, pass) // it fails when the thread was killed since
	}
}

// stopAtCalls makes the kernel stop this process, and what it starts, for its
// tracer at the calls that can be points, and at no others.
func stopAtCalls() error {
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // the call's number
	for n := range calls {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(n), Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_TRACE})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	runtime.LockOSThread() // as both calls must come from one thread
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if e != 0 {
		return e
	}
	return nil
}

// syscall is called as a thread is about to make a call.
func (tr *tracer) syscall(t *testing.T, tid int) fate {
	var info struct { // struct ptrace_syscall_info
		op     uint8
		_      [3]uint8
		arch   uint32
		ip, sp uint64
		nr     uint64
		args   [6]uint64
		_      [3]uint64
	}
	if _, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0); e != 0 {
		return pass // killed since
	}
	c := calls[info.nr]
	p := point{number: tr.numbers + 1, call: c, length: info.args[2], path: subject(tid, c, info.args)}
	if p.path != tr.watch && !strings.HasPrefix(p.path, tr.watch+"/") {
		return pass
	}
	tr.numbers++
	p.creates = c.name == "openat" && info.args[2]&(unix.O_CREAT|unix.O_TRUNC) != 0
	p.call.changes = c.changes || p.creates
	f := tr.decide(p)
	tr.registers(t, tid, func(r *unix.PtraceRegs) {
		switch f {
		case pass:
		case tear:
			r.Rdx = p.length / 2
		default: // no call at all
			r.Orig_rax, r.Rax = ^uint64(0), uint64(-int64(errnos[f]))
		}
	})
	if f == kill {
		tr.kill()
	}
	return f
}

func (tr *tracer) registers(t *testing.T, tid int, change func(*unix.PtraceRegs)) {
	var r unix.PtraceRegs
	err := unix.PtraceGetRegs(tid, &r)
	if err == nil {
		change(&r)
		err = unix.PtraceSetRegs(tid, &r)
	}
	if err != nil {
		t.Errorf("thread %d: %v", tid, err)
	}
}

func (tr *tracer) kill() {
	for tid := range tr.threads {
		_ = unix.Kill(tid, unix.SIGKILL)
	}
}

// subject is the path that a call is about.
func subject(tid int, c call, args [6]uint64) string {
	at := ""
	if c.fd >= 0 && int32(args[c.fd]) != unix.AT_FDCWD {
		at, _ = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, int32(args[c.fd])))
	}
	if c.path < 0 {
		return at
	}
	name := text(tid, uintptr(args[c.path]))
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(at, name)
}

// text reads what ends with a zero from the memory of a thread.
func text(tid int, at uintptr) string {
	var all []byte
	for word := make([]byte, 8); len(all) < unix.PathMax; at += 8 {
		if n, err := unix.PtracePeekData(tid, at, word); err != nil || n < len(word) {
			break
		}
		if v := binary.LittleEndian.Uint64(word); (v-0x0101010101010101)&^v&0x8080808080808080 != 0 {
			all = append(all, word[:strings.IndexByte(string(word), 0)]...)
			break
		}
		all = append(all, word...)
	}
	return string(all)
}
