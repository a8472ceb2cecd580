"""Traps in the Python processes of a test cluster: at named points a process fails, waits, stops or kills, once.

A trap is a file in $MANIFESTCOMMIT_TEST_TRAPS named after the point; its content is the action. The process that renames the
file is the one that acts. Points: task-<n>-writing, task-<n>-before-put and task-<n>-after-put (in the task that writes
partition n), deleted (behind a request that deletes several objects), planned (in the process that plans a write, before its tasks
start), commit-before-create and commit-after-create (in the process that creates a version).
"""

import json
import os
import signal
import time

TRAPS = os.environ.get("MANIFESTCOMMIT_TEST_TRAPS")


def spring(point, attempt=None):
    """Do what the trap at this point says, if there is one and nobody else sprang it. attempt: of the task, where it is in one."""
    trap = os.path.join(TRAPS, point)
    try:
        with open(trap, encoding="utf-8") as file:
            action = file.read()
        os.rename(trap, trap + ".sprung")
    except FileNotFoundError:
        return
    jvm = ancestor("java")
    if attempt is not None:
        with open(trap + ".attempt", "w", encoding="utf-8") as file:
            file.write(attempt)
    with open(trap + ".new", "w", encoding="utf-8") as file:
        json.dump({"worker": os.getpid(), "executor": jvm}, file)
    os.rename(trap + ".new", trap + ".pids")
    act(action, trap, jvm)


def act(action, trap, jvm):
    if action == "fail":
        raise OSError("the disk of this task is full")
    if action == "wait":  # until the test says so, or kills this process
        deadline = time.monotonic() + 60
        while not os.path.exists(trap + ".go") and time.monotonic() < deadline:
            time.sleep(0.02)
    elif action == "stop":  # the executor falls silent; this process stays where it is until it is woken
        os.kill(jvm, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "kill":  # the executor goes, and this process with it
        os.kill(jvm, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "kill self":
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        raise ValueError(action)


def ancestor(program):
    """The nearest process above this one that runs `program`; None if there is none."""
    pid = os.getppid()
    while pid > 1:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            name, _, rest = file.read().partition("(")[2].rpartition(")")
        if name == program:
            return pid
        pid = int(rest.split()[1])
    return None


def set_traps():
    from manifestcommit.files.writer import DataFileWriter
    from manifestcommit.job import Job
    from manifestcommit.store.local import LocalStore

    begin, write, close = DataFileWriter.__init__, DataFileWriter.write, DataFileWriter.close
    create, delete, plan = LocalStore.put_if_absent, LocalStore.delete, Job.plan_write

    def trapped_begin(self, store, plan, *, task, attempt, **options):
        begin(self, store, plan, task=task, attempt=attempt, **options)
        self.task_of_test, self.attempt_of_test = task, attempt

    def trapped_write(self, batch):
        write(self, batch)
        spring(f"task-{self.task_of_test}-writing", self.attempt_of_test)

    def trapped_close(self):
        if self._entries is not None:
            return close(self)
        spring(f"task-{self.task_of_test}-before-put", self.attempt_of_test)
        entries = close(self)
        spring(f"task-{self.task_of_test}-after-put", self.attempt_of_test)
        return entries

    def trapped_plan(self, *arguments, **options):
        planned = plan(self, *arguments, **options)
        spring("planned")
        return planned

    def trapped_create(self, name, data):
        if "/versions/" not in name or "/i-" in name or "/TABLE-" in name:
            return create(self, name, data)
        spring("commit-before-create")
        won = create(self, name, data)
        spring("commit-after-create")
        return won

    def trapped_delete(self, names):
        wanted = list(names)
        delete(self, wanted)
        if len(wanted) > 1:
            spring("deleted")

    DataFileWriter.__init__, DataFileWriter.write, DataFileWriter.close = trapped_begin, trapped_write, trapped_close
    LocalStore.put_if_absent, LocalStore.delete, Job.plan_write = trapped_create, trapped_delete, trapped_plan


if TRAPS:
    set_traps()
