import sys, time, os
from pathlib import Path
import tempfile
from tests.support.faults.mountedimage import MountedImage
from tests.support.servers.server import Server, PASSWORD
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.pop3 import Pop3
from tests.support.stores import messages

def test_try(tmp_path):
    with MountedImage(tmp_path / "volume", 200 << 20) as vol:
        server = Server(vol.folder, ["alice"], {"log.level": "debug", "log.file": str(tmp_path / "log")})
        server.log = tmp_path / "server.log"
        with server:
            with Lmtp(server.lmtp) as l:
                for n in range(5):
                    assert l.deliver("", ["alice"], messages.make(1, n, 2000))[0].code == 250
            t = time.time()
            vol.meet_an_error()
            with Lmtp(server.lmtp) as l:
                print(l.deliver("", ["alice"], messages.make(1, 9, 2000)))
            for _ in range(100):
                if "from a copy" in (tmp_path / "log").read_text(): break
                time.sleep(0.1)
            time.sleep(2)
            print(time.time() - t)
            with Imap(server.imap, "alice", PASSWORD) as i:
                print(i.command("SELECT INBOX")); print(i.command("STATUS INBOX (MESSAGES)")); print(i.command("EXAMINE INBOX"));print((tmp_path / "log").read_text()[-3000:])
                print(len(i.messages()))
                print(i.command("STORE 1 +FLAGS (\\Seen)"))
                print(i.command("STATUS INBOX (MESSAGES UIDNEXT)"))
                print(i.command("SEARCH TEXT foo"))
                print(i.append("INBOX", messages.make(1, 8, 2000)))
                print(i.command("CREATE foo"))
            with Lmtp(server.lmtp) as l:
                print(l.deliver("", ["alice"], messages.make(1, 9, 2000)))
            print(server.command("stats", status=0)[:500])
            vol.mend()
            for _ in range(100):
                if "written to again" in (tmp_path / "log").read_text(): break
                time.sleep(0.1)
            time.sleep(3)
            with Lmtp(server.lmtp) as l:
                print(l.deliver("", ["alice"], messages.make(1, 9, 2000)))
            server.check()
            print(server.stop())
        print((tmp_path / "log").read_text())
        print(server.log.read_text())
        print(list(Path("/dev/shm").glob("onecopy-0/*")))
