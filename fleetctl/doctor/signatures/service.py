"""The service itself: its port, its unit, its processes that report each other's end."""

from __future__ import annotations

from fleetctl.doctor.signatures.signature import Signature

ABOVE = "the first error above that line is the cause"

SVC = [
    Signature(
        "svc-port-taken",
        r"\[Errno 98\]|[Aa]ddress already in use|EADDRINUSE|port \d+ is (?:already )?(?:in use"
        r"|occupied|not available)",
        "the port is taken by another process",
        "find its owner (`ss -ltnp`), stop it, or give the slot another port",
        verdict="fatal",
        commands=("ss -ltnp",),
        also=(
            r"[Oo]nly one usage of each socket address|[Pp]ort \d+ .{0,30}already"
            r"|[Cc]ould not find (?:an )?(?:available|free) port|bind\(\) .{0,40}failed"
            r"|port is already allocated"
        ),
    ),
    Signature(
        "svc-working-directory",
        r"status=200/CHDIR|Changing to the requested working directory failed",
        "the unit's WorkingDirectory is not there",
        "make the folder, or correct WorkingDirectory= in the unit",
    ),
    Signature(
        "svc-executable",
        r"status=203/EXEC|Failed at step EXEC|Failed to (?:execute|locate executable)"
        r"|env: '?[^']+'?: No such file|status=12[67]/n/a|Failed to run '\w+' task|(?:Unable to locate"
        r"|not an) executable"
        r"|python[\d.]*: No such file or directory",
        "what the unit's ExecStart names cannot be executed: missing, no execute bit, or an interpreter "
        "that is gone",
        "correct the path (an environment that was moved or removed: `fleetctl env list`), then deploy again",
    ),
    Signature(
        "svc-command",
        r": (?:line \d+: )?[\w./-]+: (?:command )?not found$|^exec \S+: |exec format error"
        r"|executable file not found|^(?:\S*bash|\S*sh|exec): (?:line \d+: )?\S+: Permission denied"
        r"|: exec: \S+: (?:permission denied|not found)|no such file or directory: unknown"
        r"|can't open file '[^']*': \[Errno 2\]|bad interpreter: ",
        "a program or script that the service calls is not there (not installed, another path, or no "
        "interpreter)",
        "install it in the environment, or correct its path",
    ),
    Signature(
        "svc-terminated",
        r"KeyboardInterrupt: terminated|SystemExit: (?:143|15)|Terminated$"
        r"|[Rr]eceived (?:signal )?SIGTERM.{0,40}before|Liveness probe failed"
        r"|Startup probe failed|Readiness probe failed",
        "the server was stopped from outside before it was ready: a probe, a start timeout, or a person",
        "a longer time for the start (TimeoutStartSec, a startup probe's failureThreshold): loading takes "
        "minutes",
    ),
    Signature(
        "svc-user",
        r"status=21[67]/(?:USER|GROUP)|Failed to determine (?:user|group) credentials|status=217/USER",
        "the unit's user or group is not there",
        "make it, or correct User= in the unit",
    ),
    Signature(
        "svc-sandbox",
        r"status=226/NAMESPACE|Failed to set up mount namespacing|status=2(?:2[578]|3\d|4\d)/[A-Z]+",
        "systemd cannot set up the unit's surroundings (a path it protects is missing, or a right)",
        "the paths in ReadWritePaths, BindPaths and the like; what the line before says",
    ),
    Signature(
        "svc-unit-file",
        r"Unit \S+ has a bad unit file setting|bad unit file setting|Failed to load environment files"
        r"|Unit \S+ not found\."
        r"|Invalid (?:section header|environment assignment)|Executable path is not absolute|Unit \S+ is masked"
        r"|Unknown (?:key name|lvalue|section) '|Failed to connect to bus|Neither a valid executable name|Missing '='"
        r"|lacks (?:both )?ExecStart|Refusing\.$|Dependency failed for ",
        "the unit's file has a mistake, or it names a file that is not there",
        "`systemd-analyze verify` names it; deploy again to have it rendered anew",
    ),
    Signature(
        "svc-start-timeout",
        r"start operation timed out|Start request timed out|Failed with result 'timeout'"
        r"|start-pre operation timed out",
        "systemd's time for the start was over before the service was ready",
        "a longer TimeoutStartSec in the unit; loading a large model takes minutes",
    ),
    Signature(
        "svc-watchdog",
        r"Watchdog timeout \(limit|Failed with result 'watchdog'|[Ss]cheduler watchdog timeout"
        r"|Detokenizer watchdog|Watchdog timeout \(|watchdog (?:timeout|fired|triggered)"
        r"|No available shared memory broadcast block"
        r"|RPC call to \w+ timed out|Timed out waiting for (?:the )?(?:engine|worker|scheduler|server)",
        "the process hung: its watchdog had no answer in time",
        "what it last did (py-spy dump); a longer --watchdog-timeout where kernels are compiled at first use",
    ),
    Signature(
        "svc-segfault",
        r"Segmentation fault|signal=SEGV|status=11/SEGV|Fatal Python error|SIGSEGV"
        r"|!!!!!!! Segfault encountered",
        "a process crashed in compiled code",
        "the Python stack below that line names the library; its versions against what the engine pins",
        consequence=True,
    ),
    Signature(
        "svc-stop-hangs",
        r"Gracefully exiting\.\.\. Remaining number of requests [1-9]",
        "the server waits for a request in flight on SIGTERM and does not end",
        "let requests in flight finish within a bound, then TimeoutStopSec and SIGKILL to the whole "
        "control group",
        "warning",
        times=3,
    ),
    Signature(
        "svc-scheduler-exception",
        r"Scheduler hit an exception|DetokenizerManager hit an exception|TokenizerManager hit an exception",
        "the scheduler process crashed",
        "the traceback below that line says why",
        verdict="fatal",
        consequence=True,
    ),
    Signature(
        "svc-sigquit-child",
        r"[Rr]eceived sigquit from a child process|SIGQUIT received\.|SIGCHLD received",
        "a child process of the engine failed",
        ABOVE,
        verdict="fatal",
        consequence=True,
    ),
    Signature(
        "svc-scheduler-dead",
        r"scheduler is dead\. Please check|Rank \d+ scheduler (?:died|is dead)"
        r"|Scheduler or DataParallelController \d+ terminated",
        "the scheduler process is dead",
        "see the lines around it and `journalctl -k` for the out-of-memory killer",
        verdict="fatal",
        consequence=True,
    ),
    Signature(
        "svc-engine-core",
        r"Engine core initialization failed|EngineCore failed to start|WorkerProc (?:failed to start"
        r"|initialization failed)"
        r"|Engine process failed to start|EngineDeadError|EngineCore encountered a fatal error"
        r"|AsyncEngineDeadError"
        r"|EngineCore encountered an issue|Worker proc \S+ died unexpectedly"
        r"|died unexpectedly, shutting down|Background loop (?:has errored|is stopped)"
        r"|Exception in worker \S+ while processing method|Initialization failed\. (?:warmup|please)"
        r"|Engine (?:loop|process) (?:is not running|has died|died)|MQEngine\w*Error"
        r"|llama runner process has terminated"
        r"|Failed core proc",
        "a process of the engine failed",
        ABOVE,
        consequence=True,
    ),
    Signature(
        "svc-child-failed",
        r"ChildFailedError|Application startup failed|State '\S+' timed out\. Killing"
        r"|ray\.exceptions\.(?:RayTaskError|WorkerCrashedError)|Job for \S+ failed|CrashLoopBackOff"
        r"|Back-off restarting failed|exited with code (?!137)[1-9]\d*|Exited \([1-9]\d*\)"
        r"|Signal \d+ \(SIG\w+\) received by PID|exitcode +: -\d+|ProcessRaisedException"
        r"|ProcessExitedException",
        "a child process ended by a signal or an error",
        "what that process said before; its own log, where it has one",
        consequence=True,
    ),
    Signature(
        "svc-build-failed",
        r"Ninja build failed|ninja: build stopped|subprocess\.CalledProcessError"
        r"|collect2: error: ld returned|Error building extension"
        r"|ninja exited with status|compilation terminated\.|CppCompileError|InductorError"
        r"|BackendCompilerFailed|exit code: [1-9]",
        "a program that was called failed (often: kernels could not be compiled)",
        "what it said stands above that line",
        consequence=True,
    ),
    Signature(
        "svc-import-failed",
        r"RuntimeError: Failed to import \S+ because of the following error"
        r"|numpy\.core\.multiarray failed to import"
        r"|ImportError: \S+ failed to import",
        "a module could not be imported",
        "the error beside that line says why",
        consequence=True,
    ),
    Signature(
        "svc-unit-failed",
        r"Main process exited, code=(?:exited|killed|dumped), status=(?!0/|143/|15/)|Failed with result '"
        r"|Start request repeated too quickly|start retries too quickly|entered FATAL state"
        r"|Failed to start |Control process exited, code=\w+, status=[1-9]|Unit entered failed state",
        "the unit's process ended with an error",
        ABOVE,
        consequence=True,
    ),
    Signature(
        "svc-killed",
        r"Exit code: -9|died with <Signals\.SIGKILL: 9>|signal: killed|exited with code 137|Killed$"
        r"|code=killed, (?:status=9/KILL|signal=KILL)"
        r"|exit code -9|exitcode ?: -?9",
        "a process was killed from outside: often the kernel's out-of-memory killer, or a stop that took "
        "too long",
        "`journalctl -k` for the out-of-memory killer; the unit's memory limits",
        consequence=True,
    ),
]
