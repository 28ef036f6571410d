import pytest

from tests.pop3.place import Place


@pytest.fixture(scope="session")
def whole_place(tmp_path_factory):
    made = Place(tmp_path_factory.mktemp("pop3") / "store")
    made.end()
    yield made
    made.store.close()


@pytest.fixture
def place(whole_place):
    whole_place.begin()
    yield whole_place
    whole_place.end()
