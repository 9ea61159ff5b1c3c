"""The image that desktops are started from, and what a desktop finds in it."""

from __future__ import annotations

import time
from collections.abc import Callable

import docker
import pytest
from docker.models.images import Image

from deskbox import images
from deskbox.desktop import Desktop
from deskbox.errors import DeskboxError, InvalidInput

# One character of each script that must be readable, in each of the generic fonts.
SCRIPTS = {
    "Latin": "ż",
    "Greek": "Ω",
    "Cyrillic": "ж",
    "Han": "漢",
    "Kana": "あ",
    "Hangul": "한",
    "emoji": "🎉",
}


docker_only = pytest.mark.backends("docker")


@pytest.fixture(scope="module")
def image(shared_desktop: Desktop) -> Image:
    """Every desktop uses it, so it is there once one runs."""
    client = docker.from_env()
    return client.images.get(images.ensure_docker_image(client, print))


@docker_only
def test_the_image_is_small(image: Image) -> None:
    assert image.attrs["Size"] <= 650e6


@docker_only
def test_the_image_knows_its_recipe(image: Image) -> None:
    assert image.labels[images.LABEL] == images.recipe_hash()


@docker_only
def test_no_account_tells_the_day_of_the_build(image: Image) -> None:
    """Or the root of the next day would be another one."""
    shadow: bytes = docker.from_env().containers.run(
        image, ["/etc/shadow"], entrypoint="cat", user="root", network_mode="none", remove=True
    )
    accounts = [line.split(":") for line in shadow.decode().splitlines()]
    assert {"root", "user"} <= {account[0] for account in accounts}
    assert {account[2] for account in accounts} == {""}


def test_it_is_debian_13_with_one_user_and_no_sudo(desktop: Desktop) -> None:
    assert b"VERSION_CODENAME=trixie" in desktop.read_file("/etc/os-release")
    assert desktop.exec(["id"]).stdout.decode().strip() == "uid=1000(user) gid=1000(user) groups=1000(user)"
    assert desktop.exec(["sh", "-c", "command -v sudo su"]).stdout in (b"", b"/usr/bin/su\n")


def test_orphans_are_buried(desktop: Desktop) -> None:
    desktop.exec(["sh", "-c", "(sleep 0.2; exit 3) & :"])
    deadline = time.monotonic() + 10
    while b"Z" in desktop.exec(["ps", "-eo", "state="]).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_has_a_font(desktop: Desktop, script: str) -> None:
    code = f"{ord(SCRIPTS[script]):x}"
    assert desktop.exec(["fc-list", f":charset={code}"]).stdout.strip()


def test_the_fonts_are_indexed_already(desktop: Desktop) -> None:
    """Or each desktop's first program would read all of them, and write an index of its own."""
    assert desktop.exec(["ls", ".cache/fontconfig"]).exit_code != 0


def test_each_desktop_is_a_machine_of_its_own(desktop: Desktop) -> None:
    found = desktop.read_file("/etc/machine-id").decode().strip()
    assert found == desktop.facts().boot_id


@pytest.mark.slow("qemu")
def test_more_packages_can_be_asked_for(launch: Callable[..., Desktop]) -> None:
    with launch(packages=["x11-apps"]) as desktop:
        assert desktop.exec(["which", "xwd"]).exit_code == 0
        assert desktop.exec(["ls", "/etc/apt/sources.list"]).exit_code != 0


@pytest.mark.slow("qemu")
@pytest.mark.parametrize(
    ("package", "error", "reason"),
    [
        ("x11 apps", InvalidInput, "no name of a Debian package"),
        ("no-such-package", DeskboxError, "Unable to"),
    ],
)
def test_a_package_that_does_not_exist_is_named(
    launch: Callable[..., Desktop], package: str, error: type[DeskboxError], reason: str
) -> None:
    with pytest.raises(error, match=f"{package}.*{reason}|{reason}.*{package}"):
        launch(packages=[package])
