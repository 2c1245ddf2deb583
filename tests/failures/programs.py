"""Programs of several languages and commands of batch scripts that fail, and what must be found."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """A script for bash, in a directory of its own."""

    name: str
    script: str
    failure: str
    text: str = ""
    whose: str = "user"
    tool: str = "bash"  # without it the case is left out


def c(name: str, program: str, failure: str, text: str, after: str = "./a") -> Case:
    """A program in C."""
    return Case(name, f"cat >a.c <<'END'\n{program}\nEND\ngcc -w -o a a.c && {after}", failure, text, tool="gcc")


SMALL = "mount -t tmpfs -o size=64k tmpfs /mnt; "
CASES = (
    Case(
        "java", "cat >A.java <<'END'\n"
        "public class A { public static void main(String[] a) { int[] x = {}; x[5] = 1; } }\n"
        "END\njava A.java", "user_code", "ArrayIndexOutOfBounds", tool="java",
    ),
    Case("java-class", "java -cp . org.example.Train", "import_env", "org.example.Train", tool="java"),
    Case("perl", "perl -e 'my $x = 0; print 1/$x'", "user_code", "division", tool="perl"),
    Case("perl-module", "perl -e 'use Nothere::Xyz'", "import_env", "Can't locate", tool="perl"),
    Case("perl-memory", "ulimit -v 300000; perl -e 'print \"a\" x 1000000000'", "host_oom", "memory", tool="perl"),
    Case("lua", "echo 'local a = nil; print(a.b)' >a.lua; lua a.lua", "user_code", "attempt to", tool="lua"),
    Case("tcl", "echo 'set x [expr {1/0}]' >a.tcl; tclsh a.tcl", "user_code", tool="tclsh"),
    Case("node-module", "echo 'require(\"nothere\")' >a.js; node a.js", "import_env", "Cannot find", tool="node"),
    Case("make", "make train", "user_code", "No rule", tool="make"),
    c("compiler", "int main() { foo = 3; }", "user_code", "undeclared"),
    c("header", "#include <nothere.h>", "import_env", "nothere.h"),
    c("symbol", "int f(); int main() { return f(); }", "user_code", "undefined reference"),
    c("assertion", "#include <assert.h>\nint main(int n) { assert(n > 3); }", "user_code", "Assertion"),
    c("null", "int main() { *(volatile int *)0 = 1; }", "segfault", "Segmentation fault"),
    c("division", "int main(int n) { return 7 / (n - 1); }", "segfault", "Floating point"),
    Case("copy", "set -e; cp /data/nothere.bin .; echo step 1", "missing_file", "nothere.bin"),
    Case("directory", "set -e; cd /data/nothere; echo step 1", "missing_file", "/data/nothere"),
    Case("unbound", "set -u; echo $NOTHERE", "user_code", "NOTHERE"),
    Case("file-size", "ulimit -f 1; dd if=/dev/zero of=x bs=1M count=5", "limits", "File size"),
    Case("disk", f"{SMALL}dd if=/dev/zero of=/mnt/x bs=1M count=1", "disk_full", "No space", "fs"),
    Case("disk-tar", f"{SMALL}head -c 1000000 /dev/zero >x; tar cf /mnt/x.tar x", "disk_full", "Wrote only", "fs"),
    Case("gzip", "head -c 99999 /dev/urandom >b; gzip b; truncate -s 500 b.gz; gunzip b.gz", "data", "gzip"),
    Case("tar", "head -c 9999 /dev/urandom >b.tar; tar xf b.tar", "data", "tar"),
    Case("python-script", "python3 /home/alice/nothere.py", "missing_file", "can't open file"),
    Case("python-syntax", "echo 'def f(:' >a.py; python3 a.py", "user_code", "SyntaxError"),
    Case(
        "python-group", "echo 'raise ExceptionGroup(\"two\", [ValueError(1), KeyError(2)])' >a.py; python3 a.py",
        "user_code", "ExceptionGroup",
    ),
    Case(
        "python-logged", "echo 'import logging, sys; logging.critical(\"no samples left\"); sys.exit(2)' >a.py\n"
        "python3 a.py", "user_code", "no samples left",
    ),
    Case("healthy-commands", "rm old; mkdir x; mkdir x; cat nothere; ls nothere; echo complete", "none"),
    Case("healthy-signals", "sleep 20 & kill $!; wait; echo all workers ended", "none"),
    Case(
        "healthy-java", "cat >A.java <<'END'\npublic class A { public static void main(String[] a) { try { throw new "
        'IllegalStateException("x"); } catch (Exception e) { e.printStackTrace(); } System.out.println("end"); } }\n'
        "END\njava A.java", "none", tool="java",
    ),
    Case("healthy-perl", "perl -e 'eval { die \"no column\" }; warn $@; print \"3 of 3\\n\"'", "none", tool="perl"),
    Case(
        "healthy-no-file", "cat >a.py <<'END'\nimport traceback\nfor step in range(5):\n  print(f'[{step}/5] loss 1')\n"
        "  try: open('/data/nothere') if step == 1 else None\n  except OSError: traceback.print_exc()\nEND\n"
        "python3 -u a.py", "none",
    ),
    Case(
        "healthy-caught", "cat >a.py <<'END'\nimport traceback\ntry: 1 / 0\n"
        "except ArithmeticError: traceback.print_exc()\n"
        "for step in range(5): print('step', step)\nEND\npython3 -u a.py",
        "none",
    ),
)  # fmt: skip
