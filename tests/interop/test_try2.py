from pathlib import Path
import traceback
from store.opening import open_store
from store.readonly import readingcopy
from store.mailboxes import uidskip
from mboxlist.names import MailboxName, INBOX
from tests.support.servers.server import Server, PASSWORD
from tests.support.clients.lmtp import Lmtp
from tests.support.stores import messages
import mboxlist.engine.freezegate as f
def test_x(tmp_path):
    with Server(tmp_path, ["alice"]) as s:
        with Lmtp(s.lmtp) as l:
            assert l.deliver("", ["alice"], messages.make(1, 1, 2000))[0].code == 250
        old = f.WriteFreeze.wait
        def wait(self):
            if self.read_only: traceback.print_stack()
            return old(self)
        f.WriteFreeze.wait = wait
        copy = readingcopy.make(s.root, 8<<20)
        st = open_store(copy)
        print(st.read_only)
        e = st.entry(MailboxName("alice", INBOX))
        print(uidskip.unstored(st, [e]))
        print(st.open_at_once(e, "alice"))
        st.close()
        readingcopy.remove(s.root)
