"""A store that `onecopy snapshot create --freeze` holds still for long, and programs that go on to use it: who reads
is served, and what is written is answered when the store goes on."""

import os
import threading

from mboxlist.engine.freezegate import WriteFreeze
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.pop3 import Pop3
from tests.support.processes import command

LIMIT = 180
BODIES = [b"Subject: %d\r\n\r\nthe text %d\r\n" % (n, n) for n in range(3)]


class Freeze:
    """The command, which ends when it is told to."""

    def __init__(self, server, folder):
        self._server, self._pipe = server, folder / "end"
        os.mkfifo(self._pipe)
        self._end = None
        self.found = []
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        self.found.append(command.run(["snapshot", "create", "--no-verify", "--freeze", f"read end < {self._pipe}"],
                                      self._server.environment(), b"", LIMIT)[0])

    def __enter__(self):
        self._thread.start()
        self._end = os.open(self._pipe, os.O_WRONLY)        # when the command reads
        write_freeze = WriteFreeze(self._server.root / "run" / "gate")
        assert write_freeze.shut
        write_freeze.close()
        return self

    def end(self):
        if self._end is not None:
            os.write(self._end, b"x\n")
            os.close(self._end)
            self._end = None
            self._thread.join(LIMIT)

    def __exit__(self, *_):
        self.end()
        assert self.found == [0]


def test_programs_go_on_while_the_store_is_held_still(mail, tmp_path):
    server, (alice, bob) = mail.server, [account.user for account in mail.accounts(2)]
    with Lmtp(server.lmtp) as lmtp:
        for body in BODIES:
            assert [reply.code for reply in lmtp.deliver("a@example.org", [alice, bob], body)] == [250, 250]
    idler = Imap(server.imap, alice)
    idler.select()
    with Freeze(server, tmp_path) as freeze:
        idler.send(b"i IDLE\r\n")
        while not idler.response().text.startswith(b"+ "):
            pass
        with Pop3(server.pop3, bob) as pop3:              # it logs in, and reads
            assert pop3.ok("STAT").split()[1] == "3" and pop3.message(2).endswith(BODIES[1])
            assert len(pop3.lines("UIDL")) == 3
            pop3.ok("QUIT")
        with Imap(server.imap, alice) as imap, Imap(server.imap, alice) as writer:
            assert imap.select()[1] == 3
            assert imap.select(examine=True)[1] == 3
            assert [octets.endswith(body) for octets, body in zip(imap.messages().values(), BODIES, strict=True)] == (
                [True] * 3)
            imap.ok("FETCH 1:* BODY[]")                     # after EXAMINE it sets nothing
            assert imap.ok('SEARCH TEXT "text 1"').find(rb"^\* SEARCH (.*)")[1] == b"2"
            imap.ok("STATUS INBOX (MESSAGES UNSEEN UIDNEXT)")
            imap.ok('LIST "" * RETURN (STATUS (MESSAGES))')
            imap.ok("CLOSE")
            writer.select()
            writer.send(b"w1 FETCH 1 BODY[]\r\n")           # it sets \Seen, which waits
            delivery = Lmtp(server.lmtp)
            assert delivery.command("MAIL FROM:<a@example.org>").code == 250
            assert delivery.command(f"RCPT TO:<{alice}>").code == 250
            assert delivery.command("DATA").code == 354
            delivery.send(b"Subject: late\r\n\r\n.\r\n")
            imap.ok("NOOP")                                 # and everybody else goes on
            assert imap.ok("STATUS INBOX (MESSAGES UNSEEN)").find(rb"MESSAGES (\d+) UNSEEN (\d+)").groups() == (
                b"3", b"3")
            idler.send(b"DONE\r\n")
            assert idler.answer(b"i").status == "OK"
            freeze.end()
            assert delivery.reply().code == 250
            answer = writer.answer(b"w1")
            assert answer.status == "OK" and [each for one in answer.untagged for each in one.literals
                                              if each.endswith(BODIES[0])]
            delivery.close()
            assert imap.ok("STATUS INBOX (MESSAGES UNSEEN)").find(rb"MESSAGES (\d+) UNSEEN (\d+)").groups() == (
                b"4", b"3")
    idler.close()
