"""Tests of the recorder, which need no grpcio: `python3 -m unittest discover -s clients/python/tests`."""

import multiprocessing
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import skopos_rpc  # noqa: E402
import traces  # noqa: E402
from skopos_rpc import callpath, context, recorder, span  # noqa: E402

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Formats(unittest.TestCase):
    def test_hashes_are_those_of_the_rust_crate(self):
        put = callpath.child(callpath.ROOT, callpath.name_hash("put"))
        self.assertEqual(put, 0x30CDC17B01302B6F)
        self.assertEqual(callpath.child(put, callpath.name_hash("get")), 0x0C71C4B65B539B6D)

    def test_both_forms_of_a_context_return_it(self):
        made = context.Context(0x0AF7651916CD43DD8448EB211C80319C, 7, 0xFEDC, 40, 3)
        state = made.tracestate("vendor=1, skopos=dead")
        self.assertTrue(state.endswith(",vendor=1"))
        self.assertEqual(context.from_w3c(made.traceparent(), state), made)
        self.assertEqual(len(made.to_bytes()), 32)

    def test_text_that_is_not_a_traceparent_is_refused(self):
        wrong = ["", "00", PARENT.upper(), PARENT + "-00", "ff" + PARENT[2:], PARENT[:54], None]
        for text in [*wrong, PARENT.replace("b7ad6b7169203331", "0" * 16)]:
            self.assertIsNone(context.from_w3c(text), text)
        self.assertEqual(context.from_w3c("01" + PARENT[2:] + "-more").flags, 1 | context.NEWER)
        self.assertEqual(context.from_w3c(PARENT, "skopos=zz,=,x").callpath, 0)


class Recording(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def files(self):
        return sorted(os.listdir(self.folder))

    def test_sides_nest_and_are_written(self):
        made = recorder.Recorder("kv", self.folder, config={"threads": 4})
        target = span.Target(made, "kv/Put", context.from_w3c(PARENT), None)
        target.begin()
        before = span.attach(target)
        span.Origin(made, "log/Append", "log").end(0, 10, 20)
        span.Origin(made, "log/Append", "log").end(1)
        span.attach(before)
        target.handled()
        target.end(0)
        made.close()
        process, (first, second, served) = traces.read(os.path.join(self.folder, self.files()[0]))
        self.assertEqual((process["config"], process["ended"], process["lost"]), ({"threads": "4"}, True, 0))
        self.assertIn("target_internal_rdma_transfer", process["unseen"])
        self.assertEqual([first["parent"], second["parent"]], [served["span"]] * 2)
        self.assertEqual([first["order"], second["order"]], [1, 2])
        self.assertEqual({side["low"] for side in (first, second, served)}, {0x8448EB211C80319C})
        self.assertEqual((first["status"], second["status"]), (0, 1))
        self.assertGreater(served["values"]["children"], 0)
        self.assertEqual(first["hash"], callpath.child(served["hash"], callpath.name_hash("log/Append")))
        self.assertEqual(os.stat(made.path).st_mode & 0o777, 0o600)

    def test_what_the_queue_cannot_take_is_counted(self):
        made = recorder.Recorder("kv", self.folder, max_queued=3)
        made._thread = object()  # No writer.
        for _ in range(10):
            span.Origin(made, "x", None).end(0)
        made._thread = None
        self.assertEqual(made.dropped(), 7)
        made.close()
        process, sides = traces.read(made.path)
        self.assertEqual((len(sides), process["lost"]), (3, 7))

    def test_clocks_and_contexts_that_cannot_be_believed_or_are_newer_are_counted(self):
        made = recorder.Recorder("kv", self.folder)
        late = "skopos=0001-ffffffff-00000000000000aa"
        for state in (late, late, late + "-new"):
            target = span.Target(made, "kv/Put", context.from_w3c(PARENT, state), None)
            self.assertLess(target.context.lamport, 4 * recorder.MAX_JUMP)
            self.assertEqual(target.context.flags, 1)
            target.end(0)
        for _ in range(40):
            made.tick(1 << 70)
        self.assertLess(made.lamport, recorder.MAX_BELIEVED + 100)
        made.close()
        counters = traces.read(os.path.join(self.folder, self.files()[0]))[0]["counters"]
        self.assertEqual((counters["clocks_bounded"], counters["newer_contexts"]), (43, 1))

    def test_callpaths_that_a_caller_invents_leave_room_for_those_of_the_process(self):
        made = recorder.Recorder("kv", self.folder)
        for path in range(1, recorder.MAX_NODES + 1):
            number, above = made.node(path, "kv/Put", is_foreign=True)
            made.node(above, "log/Append")
        self.assertEqual((number, above), (0, recorder.OTHER_HASH))
        self.assertGreater(made.node(0, "own")[0], 0)
        made.close()

    def test_a_forked_process_has_a_file_of_its_own(self):
        made = recorder.Recorder("kv", self.folder)
        span.Origin(made, "of-the-parent", None).end(0)
        child = multiprocessing.get_context("fork").Process(target=_in_child, args=(made,))
        child.start()
        child.join()
        self.assertEqual(child.exitcode, 0)
        made.close()
        found = [[side["name"] for side in traces.read(os.path.join(self.folder, name))[1]] for name in self.files()]
        self.assertEqual(sorted(found), [["of-the-child"], ["of-the-parent"]])

    def test_samples_of_the_process_are_written(self):
        made = recorder.Recorder("kv", self.folder)
        span.Origin(made, "x", None).end(0)
        made.flush()
        made.close()
        process, _ = traces.read(made.path)
        merged = {name: value for sample in process["samples"] for name, value in sample.items()}
        self.assertGreater(merged["process_resident_bytes"], 0)

    def test_a_file_that_takes_no_more_bytes_is_named_in_a_warning(self):
        made = recorder.Recorder("kv", self.folder)
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, made._file)
        os.close(full)
        with self.assertLogs("skopos_rpc", "WARNING") as logged:
            span.Origin(made, "x", None).end(0)
            made.close()
        self.assertEqual(len(logged.output), 1)
        self.assertIn(made.path, logged.output[0])

    def test_without_a_folder_the_environment_names_it(self):
        self.addCleanup(skopos_rpc.stop)
        self.addCleanup(os.environ.pop, "SKOPOS_TRACE", None)
        for wrong in ("", "traces"):
            os.environ["SKOPOS_TRACE"] = wrong
            with self.assertRaisesRegex(ValueError, "SKOPOS_TRACE"):
                skopos_rpc.start("kv")
        os.environ["SKOPOS_TRACE"] = self.folder
        self.assertEqual(os.path.dirname(skopos_rpc.start("kv").path), self.folder)

    def test_a_name_that_is_a_path_is_refused(self):
        for name in ("../x", "", "a" * 49, "KV"):
            with self.assertRaises(ValueError):
                recorder.Recorder(name, self.folder)


def _in_child(made):
    span.Origin(made, "of-the-child", None).end(0)
    made.close()


if __name__ == "__main__":
    unittest.main()
