"""What an operator does in the console, in a real browser: nothing complains, and nothing is in anybody's way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")
from playwright.sync_api import expect

from heliograph.nodes.users import UserStore
from tests.browser.conftest import Window
from tests.browser.stages import INVOICES, LEDGER, NEWS, OPS, ORDERS, Parted, Shop
from tests.interop.stage import Stage

pytestmark = [pytest.mark.req("X3"), pytest.mark.timeout(300, func_only=True)]
CHEAP = (16, 8, 1)
SECRET = "ann's secret"
# What is there and begins or ends beside a window of a phone.
BESIDE_THE_WINDOW = """(all) => all.filter((each) => {
  const { left, right, width } = each.getBoundingClientRect();
  return width > 0 && (left < 0 || right > innerWidth);
}).map((each) => each.textContent)"""
PAGES = ("overview", "destinations", "dead", "units", "alerts", "cluster", "log", "server")
EVERY_PAGE = (*PAGES, f"d/{ORDERS}", f"d/{NEWS}", f"d/{OPS}")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    users = folder / "users.toml"
    UserStore(users).add("ann", SECRET, ["admin"], cost=CHEAP)
    UserStore.load(users).add("bob", SECRET, cost=CHEAP)
    with Shop(folder, {"identity.users_file": str(users)}, "ann:ann%27s%20secret@") as shop:
        shop.fail()
        shop.open()
        yield shop


def go(window: Window, stage: Any, page: str) -> Any:
    window.page.goto(f"http://{stage.host}:{stage.port}/console/#/{page}")
    return window.page


def enter(window: Window, shop: Shop, page: str = "overview") -> Any:
    """As ann."""
    window.expected.append("401")  # whoever is not logged in is told so before they are asked
    shown = go(window, shop, page)
    shown.get_by_label("User").fill("ann")
    shown.get_by_label("Password").fill(SECRET)
    shown.get_by_role("button", name="Log in").click()
    expect(shown.get_by_role("navigation")).to_be_visible()
    return shown


def test_who_is_not_known_is_asked_and_told(window: Window, shop: Shop) -> None:
    window.expected.append("401")
    page = go(window, shop, "overview")
    page.get_by_label("User").fill("ann")
    page.get_by_label("Password").fill("wrong")
    window.picture("log-in")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("password is wrong")
    page.get_by_label("Password").fill(SECRET)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Password")).to_be_visible()


def test_who_may_not_administer_is_told_so(window: Window, shop: Shop) -> None:
    window.expected += ["401", "403"]
    page = go(window, shop, "overview")
    page.get_by_label("User").fill("bob")
    page.get_by_label("Password").fill(SECRET)
    page.keyboard.press("Enter")
    expect(page.get_by_text("bob may not administer this server")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Password")).to_be_visible()


def test_a_server_that_comes_back_is_noticed(window: Window, tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        page = go(window, stage, "overview")
        expect(page.locator("#pulse")).to_have_text("live")
        window.expected += ["ERR_", "503", "502"]
        stage.run(stage._stop())  # not a restart, which may be over before anybody looks
        expect(page.locator("#pulse")).to_have_text("no news from the server")
        stage.run(stage._start())
        expect(page.locator("#pulse")).to_have_text("live")
        page.keyboard.press("7")
        expect(page.get_by_text("server-started")).to_have_count(2)


def test_a_rate_moves(window: Window, shop: Shop) -> None:
    page = enter(window, shop)
    value = page.locator(".tile", has_text="In a second").locator(".value")
    expect(value).to_have_text(re.compile(r"^[1-9][0-9.,]*$"))
    first = page.locator(".plot .line.in").get_attribute("d") or ""
    expect(page.locator(".plot .line.in")).not_to_have_attribute("d", first)
    expect(page.get_by_role("link", name=LEDGER)).to_be_visible()
    page.wait_for_timeout(8000 if _pictures() else 0)
    window.picture("overview")


def _pictures() -> bool:
    from tests.browser.conftest import PICTURES

    return PICTURES is not None


def test_a_dead_message_is_looked_at_and_goes_again(window: Window, shop: Shop) -> None:
    page = enter(window, shop, "dead")
    expect(page.get_by_text("5 messages could not be delivered")).to_be_visible()
    expect(page.get_by_role("cell", name="cannot reach the bank")).to_be_visible()
    window.picture("dead-messages")
    rows = page.locator(".message")
    expect(rows).to_have_count(5)
    rows.first.locator("summary .preview").click()
    body = rows.first.locator("pre.body")
    expect(body).to_contain_text('"entry": 0')
    expect(body).to_contain_text("<img src=x onerror=alert(1)>")  # text stays text
    rows.first.get_by_role("button", name="hex").click()
    expect(body).to_contain_text("82 a5 65 6e 74 72 79")
    rows.first.get_by_role("checkbox").check()
    page.locator("main .actions button.main", has_text="Send again").click()
    page.get_by_role("dialog").get_by_role("button", name="Send again").click()
    expect(page.get_by_text("1 sent again.")).to_be_visible()
    expect(rows).to_have_count(4)
    page.get_by_role("row", name=INVOICES).get_by_role("button").click()
    page.get_by_role("dialog").get_by_role("button", name="Send again").click()
    expect(page.get_by_text("No message is dead: all went where they should.")).to_be_visible()
    go(window, shop, f"d/{INVOICES}")
    expect(page.locator(".message")).to_have_count(5)


def test_a_queue_is_paused_and_its_messages_are_moved(window: Window, shop: Shop) -> None:
    page = enter(window, shop, "destinations")
    for name in ("queue:elsewhere", "queue:shelf"):
        page.get_by_role("button", name="Create").click()
        page.get_by_role("dialog").get_by_role("textbox").fill(name)
        page.get_by_role("dialog").get_by_role("button", name="Create").click()
        expect(page.get_by_role("link", name=name)).to_be_visible()
    page.locator("main").press("/")
    page.keyboard.type("shelf")
    expect(page.locator(".row")).to_have_count(1)
    page.get_by_role("link", name="queue:shelf").click()
    expect(page.get_by_role("heading", name="queue:shelf")).to_be_visible()
    page.get_by_role("button", name="Send…").click()
    page.get_by_role("dialog").get_by_label("Body").fill("from the console")
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    row = page.locator(".message", has_text="from the console")
    expect(row).to_be_visible()
    row.get_by_role("checkbox").check()
    page.get_by_role("button", name="Move…").click()
    page.get_by_role("dialog").get_by_label("To which queue").fill("queue:elsewhere")
    page.get_by_role("dialog").get_by_role("button", name="Move").click()
    expect(page.get_by_text("1 moved to queue:elsewhere.")).to_be_visible()
    expect(row).to_have_count(0)


def test_a_policy_is_changed_where_it_was_edited(window: Window, shop: Shop) -> None:
    page = enter(window, shop, f"d/{INVOICES}")
    for edited, said in (
        (("", ""), "Nothing was changed."),
        (('limit": 1,', 'limit": 7,'), "It is changed."),
    ):
        page.get_by_role("button", name="Change…").click()
        policy = page.get_by_role("dialog").get_by_role("textbox")
        expect(policy).to_have_value(re.compile('"redelivery_limit": 1,'))
        policy.fill(policy.input_value().replace(*edited))
        page.get_by_role("dialog").get_by_role("button", name="Change").click()
        expect(page.get_by_text(said)).to_be_visible()
    expect(page.locator(".facts > div", has_text="redelivery limit")).to_contain_text("7")
    page.get_by_role("button", name="Change…").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("{redelivery_limit: 5}")
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(page.get_by_text("That is no JSON")).to_be_visible()


def test_a_stuck_unit_is_helped(window: Window, shop: Shop) -> None:
    page = enter(window, shop, "units")
    expect(page.get_by_role("cell", name="account-17")).to_be_visible()
    window.picture("stuck-units")
    page.get_by_role("link", name=LEDGER).click()
    expect(page.get_by_text("1 unit stuck")).to_be_visible()
    expect(page.locator(".message")).to_have_count(2)  # the one that is stuck, and the one behind it
    expect(page.locator(".tile", has_text="Oldest waits since")).not_to_contain_text("–")
    page.keyboard.press("4")
    page.set_viewport_size({"width": 390, "height": 780})
    expect(page.get_by_role("button", name="Give up…")).to_be_in_viewport(ratio=0.95)
    expect(page.get_by_role("link", name=LEDGER)).to_be_in_viewport(ratio=0.95)
    page.get_by_role("button", name="Give up…").click()
    page.get_by_role("dialog").get_by_role("button", name="Give it up").click()
    expect(page.get_by_text("All units move.")).to_be_visible()


def test_alerts_and_events(window: Window, shop: Shop) -> None:
    page = enter(window, shop, "alerts")
    first = page.locator("main tbody tr").first
    expect(first).to_contain_text("TAG:disk")
    expect(first.locator(".level.high")).to_have_text("9")
    expect(first).to_contain_text("disk of db-3 is 91 % full")
    expect(first).to_contain_text("it is cancelled")
    window.picture("alerts")
    go(window, shop, f"d/{OPS}")
    page.get_by_role("link", name="Live alerts").click()
    expect(first).to_contain_text("TAG:disk")
    page.keyboard.press("7")
    expect(page.get_by_role("heading", name="Events")).to_be_visible()
    expect(page.get_by_text("server-started").first).to_be_visible()


def test_a_topic_says_who_subscribes_and_moves(window: Window, shop: Shop) -> None:
    page = enter(window, shop, f"d/{NEWS}")
    expect(page.get_by_role("cell", name="archive")).to_be_visible()
    expect(page.locator(".tile", has_text="In a second").locator(".value")).to_have_text(
        "0"
    )  # it is kept up to date
    page.get_by_role("button", name="Send…").click()
    page.get_by_role("dialog").get_by_label("Body").fill("another shelf")
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    expect(page.get_by_role("row", name="archive")).to_contain_text("durable, shared")
    expect(page.get_by_role("row", name="archive").locator("td.number").first).to_have_text("2")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.nightly)])
def test_nobody_stumbles(browser: Any, shop: Shop, axe: str, scheme: str) -> None:
    """axe finds nothing serious on any page; in a window of a phone's size nothing is cut off."""
    window = Window(browser, scheme=scheme)
    page = enter(window, shop)
    for name in EVERY_PAGE:
        go(window, shop, name)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.wait_for_timeout(700)
        page.evaluate(axe)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious = [
            f"{name}: {each['id']} {[node['html'][:120] for node in each['nodes'][:3]]}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert not serious, serious
    page.set_viewport_size({"width": 390, "height": 780})
    for name in EVERY_PAGE:
        go(window, shop, name)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.wait_for_timeout(300)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, f"{name} is {width} wide"
        expect(page.locator("#nav a[aria-current]")).to_be_in_viewport(ratio=0.95)
        hidden = page.locator("main button, main td").evaluate_all(BESIDE_THE_WINDOW)
        assert not hidden, f"on {name} one has to look for {hidden}"
        if name == "overview":
            window.picture(f"phone-{scheme}")
    window.close()


def test_everything_is_reached_by_keyboard(window: Window, shop: Shop) -> None:
    page = enter(window, shop)
    page.keyboard.press("Tab")
    for number, name in enumerate(PAGES, 1):
        page.keyboard.press(str(number))
        expect(page.locator("#nav a[aria-current]")).to_have_attribute("href", f"#/{name}")
    before = page.evaluate("document.documentElement.dataset.theme")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") != before
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.req("P10")
def test_a_partition_happens_and_heals_before_ones_eyes(window: Window, tmp_path: Path) -> None:
    with Parted(tmp_path) as stage:
        stage.send("queue:orders", 3)
        page = go(window, stage, "cluster")
        state = page.get_by_role("region", name="Sub-cluster main")
        expect(state.locator(".letter")).to_have_text("A")
        expect(state.locator(".node")).to_have_count(2)
        expect(state.locator(".badge.sun")).to_have_text("leads")
        window.picture("cluster-whole")
        window.expected += ["503", "ERR_"]
        stage.cut([1, 12], [2, 3, 11])
        expect(state.locator(".letter")).to_have_text("D")
        expect(state.get_by_text("This part is restricted")).to_be_visible()
        expect(state.locator(".node.gone")).to_have_count(1)
        expect(state.get_by_text("3 messages are held back")).to_be_visible()
        window.picture("cluster-parted")
        stage.cut()
        expect(state.locator(".letter")).to_have_text("A")
        expect(state.locator(".node.gone")).to_have_count(0)
        expect(page.get_by_text("D, restricted").first).to_be_visible()
        expect(state.locator(".held")).to_have_count(0)
        expect(state.get_by_text("in force", exact=True)).to_be_visible()
        window.picture("cluster-healed")
