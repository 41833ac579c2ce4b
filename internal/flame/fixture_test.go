package flame

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// stacks builds observe.Stacks out of lines as a person writes them.
type stacks struct {
	observe.Stacks
	ids map[observe.Frame]int32
}

func newStacks() *stacks {
	return &stacks{ids: map[observe.Frame]int32{}, Stacks: observe.Stacks{
		StartNS: 1_790_000_000_000_000_000, WindowNS: 10_000_000_000, Hz: 99,
		Types: []observe.StackValue{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}, {Type: "off-cpu", Unit: "nanoseconds"}},
	}}
}

var kindOf = map[string]observe.FrameKind{
	"k": observe.FrameKernel, "n": observe.FrameNative, "g": observe.FrameGo, "py": observe.FramePython, "j": observe.FrameJava,
	"php": observe.FramePHP, "js": observe.FrameNode, "rb": observe.FrameRuby,
}

// frame is "kind:name", "kind:name@module", "kind:name@module@file@line".
func (s *stacks) frame(text string) int32 {
	kind, rest, _ := strings.Cut(text, ":")
	parts := strings.Split(rest, "@")
	f := observe.Frame{Kind: kindOf[kind], Name: parts[0]}
	if len(parts) > 1 {
		f.Module = parts[1]
	}
	if len(parts) > 3 {
		f.File = parts[2]
		fmt.Sscan(parts[3], &f.Line)
	}
	id, ok := s.ids[f]
	if !ok {
		id = int32(len(s.Frames))
		s.ids[f] = id
		s.Frames = append(s.Frames, f)
	}
	return id
}

// on adds n samples on the CPU; the root comes first in stack, frames are
// separated by " | ".
func (s *stacks) on(pid int, comm string, n int64, stack string) *observe.StackSample {
	return s.put(pid, comm, stack, []int64{n, n * 10_101_010, 0}, "")
}

// off adds a wait of so many milliseconds.
func (s *stacks) off(pid int, comm string, ms int64, stack string) *observe.StackSample {
	return s.put(pid, comm, stack, []int64{0, 0, ms * 1_000_000}, "blocked")
}

func (s *stacks) put(pid int, comm, stack string, values []int64, state string) *observe.StackSample {
	sample := observe.StackSample{PID: pid, TID: pid, Comm: comm, Values: values, State: state}
	frames := strings.Split(stack, " | ")
	for i := len(frames) - 1; i >= 0; i-- {
		sample.Frames = append(sample.Frames, s.frame(frames[i]))
	}
	s.Samples = append(s.Samples, sample)
	return &s.Samples[len(s.Samples)-1]
}

// shop is a host with a service in every language.
func shop() *stacks {
	s := newStacks()
	const (
		entry = "k:entry_SYSCALL_64_after_hwframe@vmlinux | k:do_syscall_64@vmlinux"
		send  = entry + " | k:__x64_sys_sendto@vmlinux | k:tcp_sendmsg@vmlinux | k:tcp_write_xmit@vmlinux | k:__ip_queue_xmit@vmlinux | k:__dev_queue_xmit@vmlinux"
		fpm   = "n:_start@php-fpm8.2 | n:main@php-fpm8.2 | n:fcgi_accept_request@php-fpm8.2"
		run   = "n:_start@php-fpm8.2 | n:main@php-fpm8.2 | n:php_execute_scripts@php-fpm8.2 | n:execute_ex@php-fpm8.2 | php:App\\Kernel::handle@@/srv/shop/src/Kernel.php@41 | php:App\\Controller\\CartController::show@@/srv/shop/src/Controller/CartController.php@88"
		gorun = "g:runtime.goexit@orders@/usr/local/go/src/runtime/asm_amd64.s@1700 | g:net/http.(*conn).serve@orders@/usr/local/go/src/net/http/server.go@2102 | g:net/http.serverHandler.ServeHTTP@orders@/usr/local/go/src/net/http/server.go@3301 | g:example.com/shop/orders.(*API).List@orders@/src/orders/api.go@57"
		java  = "n:thread_native_entry@libjvm.so | n:JavaThread::run()@libjvm.so | j:java.lang.Thread.run@@Thread.java@1583 | j:java.util.concurrent.ThreadPoolExecutor.runWorker@@ThreadPoolExecutor.java@1144 | j:com.example.search.SearchHandler.handle@@SearchHandler.java@72"
		py    = "n:_start@python3.11 | n:Py_BytesMain@python3.11 | n:_PyEval_EvalFrameDefault@python3.11 | py:<module>@@/srv/reco/app.py@212 | py:serve_forever@@/usr/lib/python3.11/socketserver.py@233 | py:recommend@@/srv/reco/model.py@97"
		node  = "n:_start@node | n:node::Start(int, char**)@node | n:uv_run@node | n:uv__io_poll@node | js:processTicksAndRejections@@node:internal/process/task_queues@95 | js:renderPage@@/srv/web/render.js@31"
		maria = "n:clone3@libc.so.6 | n:start_thread@libc.so.6 | n:handle_one_connection@mariadbd | n:do_command(THD*, bool)@mariadbd | n:dispatch_command(enum_server_command, THD*, char*, unsigned int, bool)@mariadbd | n:mysql_execute_command(THD*, bool)@mariadbd | n:JOIN::exec_inner()@mariadbd | n:sub_select(JOIN*, st_join_table*, bool)@mariadbd"
	)
	s.on(812, "php-fpm", 140, run+" | php:App\\Cart::total@@/srv/shop/src/Cart.php@132 | php:App\\Price::round@@/srv/shop/src/Price.php@19")
	s.on(812, "php-fpm", 85, run+" | php:App\\Cart::total@@/srv/shop/src/Cart.php@140 | php:preg_replace@@@0 | n:php_pcre_replace_impl@php-fpm8.2 | n:pcre2_match_8@libpcre2-8.so.0.11.2")
	s.on(812, "php-fpm", 30, run+" | php:PDOStatement::execute@@@0 | n:mysqlnd_query@php-fpm8.2 | n:send@libc.so.6 | "+send)
	s.off(812, "php-fpm", 4210, run+" | php:PDOStatement::execute@@@0 | n:mysqlnd_query@php-fpm8.2 | n:recv@libc.so.6 | "+entry+" | k:__x64_sys_recvfrom@vmlinux | k:tcp_recvmsg@vmlinux | k:sk_wait_data@vmlinux | k:schedule@vmlinux").Slow = true
	s.off(812, "php-fpm", 5300, fpm+" | n:accept@libc.so.6 | "+entry+" | k:__x64_sys_accept@vmlinux | k:inet_csk_accept@vmlinux | k:schedule@vmlinux")
	s.on(813, "php-fpm", 60, run+" | php:App\\Cart::total@@/srv/shop/src/Cart.php@132 | php:App\\Price::round@@/srv/shop/src/Price.php@19").Slow = true
	s.on(2001, "orders", 48, gorun+" | g:encoding/json.Marshal@orders@/usr/local/go/src/encoding/json/encode.go@171 | g:encoding/json.(*encodeState).reflectValue@orders@/usr/local/go/src/encoding/json/encode.go@360")
	s.on(2001, "orders", 31, "g:runtime.gcBgMarkWorker@orders@/usr/local/go/src/runtime/mgc.go@1412 | g:runtime.gcDrain@orders@/usr/local/go/src/runtime/mgcmark.go@1192 | g:runtime.scanobject@orders@/usr/local/go/src/runtime/mgcmark.go@1446")
	s.on(2001, "orders", 22, gorun+" | g:internal/poll.(*FD).Write@orders@/usr/local/go/src/internal/poll/fd_unix.go@381 | g:syscall.write@orders@/usr/local/go/src/syscall/zsyscall_linux_amd64.go@964 | "+send)
	s.off(2001, "orders", 1800, gorun+" | g:sync.(*Mutex).lockSlow@orders@/usr/local/go/src/sync/mutex.go@149 | g:runtime.semacquire1@orders@/usr/local/go/src/runtime/sema.go@160").Slow = true
	x := s.on(3100, "java", 75, java+" | j:org.apache.lucene.search.IndexSearcher.search@@IndexSearcher.java@552 | j:org.apache.lucene.search.BooleanScorer.score@@BooleanScorer.java@214")
	x.TID, x.Thread = 3131, "search-worker-1"
	x = s.on(3100, "java", 40, "n:thread_native_entry@libjvm.so | n:GangWorker::run()@libjvm.so | n:G1ParScanThreadState::trim_queue()@libjvm.so | n:void G1ParScanThreadState::do_oop_evac<narrowOop>(narrowOop*)@libjvm.so")
	x.TID, x.Thread = 3105, "GC Thread#0"
	x = s.off(3100, "java", 9200, java+" | j:java.util.concurrent.locks.LockSupport.park@@LockSupport.java@221 | n:Unsafe_Park@libjvm.so | "+entry+" | k:__x64_sys_futex@vmlinux | k:futex_wait_queue@vmlinux | k:schedule@vmlinux")
	x.TID, x.Thread = 3131, "search-worker-1"
	s.on(4000, "python3", 66, py+" | py:cosine@@/srv/reco/model.py@31 | n:ufunc_generic_fastcall@_multiarray_umath.so | n:DOUBLE_multiply_AVX2@_multiarray_umath.so")
	s.on(4000, "python3", 34, py+" | py:loads@@/usr/lib/python3.11/json/__init__.py@299 | py:raw_decode@@/usr/lib/python3.11/json/decoder.py@344 | n:scan_once_unicode@_json.so")
	s.on(5100, "node", 58, node+" | js:renderToString@@/srv/web/node_modules/react-dom/server.js@812 | js:escapeHtml@@/srv/web/node_modules/react-dom/server.js@90")
	s.on(5100, "node", 17, "n:_start@node | n:node::Start(int, char**)@node | n:v8::internal::Heap::CollectGarbage(v8::internal::AllocationSpace, v8::internal::GarbageCollectionReason, v8::GCCallbackFlags)@node | n:v8::internal::Scavenger::ScavengePage(v8::internal::MutablePageMetadata*)@node")
	x = s.on(900, "mariadbd", 92, maria+" | n:evaluate_join_record(JOIN*, st_join_table*, int)@mariadbd | n:row_search_mvcc(unsigned char*, page_cur_mode_t, row_prebuilt_t*, unsigned long, unsigned long)@mariadbd | n:btr_cur_t::search_leaf(dtuple_t const*, page_cur_mode_t, btr_latch_mode, mtr_t*)@mariadbd")
	x.TID, x.Thread = 977, "one_connection"
	x = s.off(900, "mariadbd", 3900, maria+" | n:row_search_mvcc(unsigned char*, page_cur_mode_t, row_prebuilt_t*, unsigned long, unsigned long)@mariadbd | n:buf_page_get_gen(page_id_t, unsigned long, unsigned long, buf_block_t*, unsigned long, mtr_t*)@mariadbd | n:pread@libc.so.6 | "+entry+" | k:__x64_sys_pread64@vmlinux | k:ext4_file_read_iter@ext4 | k:folio_wait_bit_common@vmlinux | k:io_schedule@vmlinux")
	x.TID, x.Thread, x.Slow = 977, "one_connection", true
	s.on(15, "ksoftirqd/1", 38, "k:ret_from_fork@vmlinux | k:kthread@vmlinux | k:smpboot_thread_fn@vmlinux | k:run_ksoftirqd@vmlinux | k:handle_softirqs@vmlinux | k:net_rx_action@vmlinux | k:__napi_poll@vmlinux | k:process_backlog@vmlinux | k:tcp_v4_rcv@vmlinux")
	s.Losses = []observe.Loss{{What: "stacks without symbols in /opt/vendor/agent", Count: 12}}
	s.Notes = []string{"python3 (4000): the first 300 ms have native frames only"}
	return s
}

// later is shop after a change: rounding is cheap now, and orders waits for a
// lock on the CPU.
func later() *stacks {
	s := shop()
	for i := range s.Samples {
		x := &s.Samples[i]
		x.PID += 10_000
		x.TID += 10_000
		switch s.Frames[x.Frames[0]].Name {
		case "App\\Price::round":
			scale(x, 0.12)
		case "runtime.scanobject":
			scale(x, 3.4)
		default:
			scale(x, 1.3)
		}
	}
	s.on(12001, "orders", 55, "g:runtime.goexit@orders@/usr/local/go/src/runtime/asm_amd64.s@1700 | g:net/http.(*conn).serve@orders@/usr/local/go/src/net/http/server.go@2102 | g:runtime.procyield@orders@/usr/local/go/src/runtime/asm_amd64.s@800")
	return s
}

func scale(x *observe.StackSample, by float64) {
	values := make([]int64, len(x.Values))
	for i, v := range x.Values {
		values[i] = int64(float64(v) * by)
	}
	x.Values = values
}

// many makes n stacks that differ, up to 40 frames deep.
func many(n int) *stacks {
	s := newStacks()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 5000 {
		s.Frames = append(s.Frames, observe.Frame{Name: fmt.Sprintf("std::__1::function_%d<std::vector<int, std::allocator<int>>>(char const*, unsigned long)", i), Kind: observe.FrameNative, Module: fmt.Sprintf("lib%d.so", i%40)})
	}
	for i := range n {
		x := observe.StackSample{PID: 100 + i%50, TID: 1000 + i%400, Comm: fmt.Sprintf("worker-%d", i%50/5), Thread: fmt.Sprintf("pool-%d", i%400), Values: []int64{1, 10_101_010, int64(r.IntN(1e6))}}
		// Stacks of a program share their lower halves.
		deep := 5 + r.IntN(35)
		for d, at := 0, 0; d < deep; d++ {
			at = (at*7 + r.IntN(1+d/3)) % 5000
			x.Frames = append([]int32{int32(at+d*100%5000) % 5000}, x.Frames...)
		}
		x.Frames = append([]int32{int32(i % 5000)}, x.Frames...)
		s.Samples = append(s.Samples, x)
	}
	return s
}
