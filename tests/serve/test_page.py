"""The page in a real browser, driven by keys; and what can be said about its files without one."""

import json
import re
import shutil
import threading
import time
import urllib.request
from importlib.resources import files

import pytest
from application import MARKUP

PAGE = files("labelfield.serve") / "page"
TITLE = 'Notes <img src=x onerror="document.title=1">'
TEXT = "A compiler and a server; the choir came by boat, with the wind in the sail."


def test_nothing_comes_from_elsewhere_and_nothing_is_inserted_as_markup():
    for path in PAGE.iterdir():
        text = path.read_text()
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path.name
        for name in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=", 'onclick="'):
            assert name not in text, f"{path.name}: {name}"


def test_the_policy_allows_only_what_is_ours(client):
    for path in ("/", "/page/page.js", "/page/page.css"):
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
    assert client.get("/page/..%2fapp.py").status_code == client.get("/page/app.py").status_code == 404
    linked = re.findall(r'(?:src|href)="(page/[^"]+)"', client.get("/").text)
    imported = [
        f"page/{name}" for path in PAGE.iterdir() for name in re.findall(r'from "\./([^"]+)"', path.read_text())
    ]
    assert len(set(linked + imported)) == 7
    assert all(client.get(f"/{name}").status_code == 200 for name in linked + imported)


@pytest.fixture(scope="module")
def address(folder, documents, tmp_path_factory):
    """The address of a server in a thread of this process."""
    import uvicorn

    from labelfield.serve.app import build_app
    from labelfield.serve.service import Service
    from labelfield.serve.settings import Settings

    own = tmp_path_factory.mktemp("page") / "topics"
    shutil.copytree(folder, own)
    kept = own.parent / "kept.jsonl"
    given = [
        {"title": title, "text": text, "labels": labels}
        for (title, text), labels in list(zip(*documents, strict=True))[:150]
    ]
    kept.write_text("".join(json.dumps(one) + "\n" for one in given))
    service = Service(Settings({"topics": own}, corrections=own.parent / "c.sqlite", data=kept))
    server = uvicorn.Server(uvicorn.Config(build_app(service), port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not (server.started and service.store.is_ready):
        time.sleep(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("there is no browser here: install chromium and chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for one in ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-proxy-server", "--window-size=1200,1400"):
        options.add_argument(one)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield found
    found.quit()


def visit(browser, address):
    """Open the page, and wait until it knows its model."""
    browser.get(address)
    until(lambda: browser.find_elements("name", "text"))


def text_of(browser, id):
    return browser.execute_script("return document.getElementById(arguments[0]).textContent", id)


def until(condition, seconds=15):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def test_a_document_is_tagged_corrected_and_undone_by_keys_alone(browser, address):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    def press(*keys):
        ActionChains(browser).send_keys(*keys).perform()

    def focused(attribute):
        return browser.switch_to.active_element.get_attribute(attribute)

    def tab_to(attribute, value):
        for _ in range(60):
            if focused(attribute) == value:
                return
            press(Keys.TAB)
        raise AssertionError(f"no way to {value} by the tab key")

    visit(browser, address)
    tab_to("name", "title")
    press(TITLE)
    tab_to("name", "text")
    press(TEXT)
    ActionChains(browser).key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()
    until(lambda: text_of(browser, "status") == "1 document tagged.")
    labels = [one.text for one in browser.find_elements(By.CSS_SELECTOR, ".tags .label")]
    assert MARKUP in labels  # shown as text
    until(lambda: browser.find_elements(By.CSS_SELECTOR, "mark"))
    assert TITLE in browser.find_element(By.CSS_SELECTOR, ".text").text
    assert browser.title == "labelfield"
    assert not browser.find_elements(By.CSS_SELECTOR, ".text img, .label b")
    marked = [one.text for one in browser.find_elements(By.CSS_SELECTOR, "mark.for")]
    assert {"compiler", "server"} & set(marked) or {"boat", "sail", "wind"} & set(marked)
    tab_to("data-key", "no 0")
    press(Keys.ENTER)
    assert (focused("aria-pressed"), focused("data-key")) == ("true", "no 0")  # the focus stays
    assert focused("aria-label").startswith("Reject ")
    tab_to("data-key", "add")
    press("brand new", Keys.ENTER)
    tab_to("data-key", "save")
    press(Keys.ENTER)
    until(lambda: text_of(browser, "status") == "The correction is stored.")
    until(lambda: text_of(browser, "corrections-summary").startswith("1 correction not learned yet"))
    assert "brand new" in text_of(browser, "corrections-list")
    tab_to("data-key", "undo")
    press(Keys.ENTER)
    until(lambda: text_of(browser, "corrections-summary").startswith("0 corrections"))
    assert not [one for one in browser.get_log("browser") if one["level"] == "SEVERE"]


@pytest.mark.slow
def test_corrections_are_learned_and_that_is_undone_by_keys_alone(browser, address):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    def enter(id):
        button = until(lambda: found if (found := browser.find_element(By.ID, id)).is_enabled() else None, 60)
        button.send_keys(Keys.ENTER)

    def shown(selector):
        script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)"
        return browser.execute_script(script, selector)

    def tags():
        return shown(".tags .label")

    visit(browser, address)
    before = browser.find_element(By.ID, "about").text
    for place in range(12):
        field = browser.find_element(By.NAME, "text")
        field.clear()
        field.send_keys(f"zeppelin airship {place} above the harbour")
        browser.find_element(By.CSS_SELECTOR, "#form .primary").send_keys(Keys.ENTER)
        until(lambda place=place: any(f"airship {place} " in one for one in shown("#list .text")))
        assert "aviation" not in tags()
        browser.find_element(By.CSS_SELECTOR, "[data-key=add]").send_keys("aviation", Keys.ENTER)
        browser.find_element(By.CSS_SELECTOR, "[data-key=save]").send_keys(Keys.ENTER)
        until(lambda: text_of(browser, "status") == "The correction is stored.")
    until(lambda: text_of(browser, "corrections-summary").startswith("12 corrections not learned yet"))
    phone = {"width": 360, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    enter("learn")
    until(lambda: browser.find_element(By.ID, "progress").is_displayed())
    assert browser.find_element(By.ID, "learning").size["height"] < 30, "the percentage is on a line of its own"
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    until(lambda: text_of(browser, "status").startswith("Learned."), 120)
    until(lambda: "aviation" in tags())  # the shown document is tagged again, by the new model
    assert browser.find_element(By.ID, "about").text != before
    browser.find_element(By.CSS_SELECTOR, "#history summary").send_keys(Keys.ENTER)
    badge = browser.find_element(By.CSS_SELECTOR, "#corrections-list .badge")
    assert (badge.text, badge.size["width"] < 100) == ("learned", True)
    enter("undo-learning")
    until(lambda: text_of(browser, "corrections-summary").startswith("12 corrections not learned yet"), 60)
    until(lambda: "aviation" not in tags())
    assert browser.find_element(By.ID, "about").text == before
    assert not [one for one in browser.get_log("browser") if one["level"] == "SEVERE"]


def test_what_a_person_said_stays_when_documents_are_tagged_again(browser, address):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    def pressed(what):
        return browser.find_element(By.CSS_SELECTOR, f"[aria-label='{what}']").get_attribute("aria-pressed")

    def tagged_again(value):
        browser.execute_script("document.getElementById('status').textContent = ''")
        move = (
            f"const s = document.getElementById('precision'); s.value = {value}; s.dispatchEvent(new Event('change'))"
        )
        browser.execute_script(move)
        until(lambda: text_of(browser, "status") == "1 document tagged.")

    visit(browser, address)
    before = until(lambda: text_of(browser, "corrections-summary"))
    browser.find_element(By.NAME, "text").send_keys("the violin and the choir", Keys.CONTROL, Keys.ENTER)
    until(lambda: text_of(browser, "status") == "1 document tagged.")
    browser.find_element(By.CSS_SELECTOR, "[aria-label='Reject music']").click()
    browser.find_element(By.CSS_SELECTOR, "[data-key=add]").send_keys("brand new", Keys.ENTER)
    for value in (70, 49):
        tagged_again(value)
        assert (pressed("Reject music"), pressed("Accept brand new")) == ("true", "true")
    browser.find_element(By.CSS_SELECTOR, "[data-key=save]").click()
    until(lambda: text_of(browser, "status") == "The correction is stored.")
    tagged_again(70)
    browser.find_element(By.CSS_SELECTOR, "[data-key=undo]").click()  # which is still there
    until(lambda: text_of(browser, "corrections-summary") == before)


def test_late_answers_replace_no_newer_ones(browser, address):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    visit(browser, address)
    browser.execute_script(
        "const real = window.fetch; let isFirst = true; window.late = 0;"
        "window.fetch = (path, options) => {"
        "  if (path !== 'tag' || !isFirst) return real(path, options);"
        "  isFirst = false;"
        "  const late = new Promise((go) => setTimeout(go, 700));"
        "  return late.then(() => real(path, options)).finally(() => window.late++);"
        "};"
    )
    browser.find_element(By.NAME, "text").send_keys("the violin and the choir", Keys.CONTROL, Keys.ENTER)
    browser.find_element(By.ID, "clear").click()
    browser.find_element(By.NAME, "text").send_keys("the telescope and the planet", Keys.CONTROL, Keys.ENTER)
    until(lambda: browser.execute_script("return window.late"))
    time.sleep(0.3)
    assert "the telescope" in text_of(browser, "list")
    assert browser.find_element(By.CSS_SELECTOR, ".tags .label").text == "astronomy"


def test_the_slider_promises_and_files_are_read(browser, address, tmp_path):
    from selenium.webdriver.common.by import By

    lines = tmp_path / "some.jsonl"
    lines.write_text('{"title": "a", "text": "the violin and the choir"}\n{"text": "nothing that is known"}\n')
    visit(browser, address)
    browser.find_element(By.ID, "files").send_keys(str(lines))
    until(lambda: text_of(browser, "status") == "2 documents tagged.")
    # A browser says nothing if the file that is open already is opened again.
    until(lambda: browser.find_element(By.ID, "files").get_attribute("value") == "")
    first = browser.find_element(By.CSS_SELECTOR, "#list article").text
    assert "nothing that is known" in first  # what a person should see comes first
    move = "const s = document.getElementById('precision'); s.value = 70; s.dispatchEvent(new Event('input')); "
    browser.execute_script(move + "s.dispatchEvent(new Event('change'))")
    until(
        lambda: (
            "at least 0.7 of all tags" in text_of(browser, "guarantee") and "%" in text_of(browser, "precision-shown")
        )
    )
    browser.find_element(By.ID, "show-dashboard").click()
    until(lambda: "Requests per minute" in text_of(browser, "dashboard-view"))
    assert not [one for one in browser.get_log("browser") if one["level"] == "SEVERE"]


@pytest.mark.parametrize("width", [360, 1600])
def test_nothing_is_wider_than_the_screen(browser, address, documents, width):
    from selenium.webdriver.common.by import By

    body = json.dumps({"documents": [text for _, text in documents[0][:60]]}).encode()
    for _ in range(15):  # so that the dashboard compares them: it keeps a few of each batch
        urllib.request.urlopen(urllib.request.Request(f"{address}tag", body)).close()
    override = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", override)
    visit(browser, address)
    browser.find_element(By.NAME, "text").send_keys("w" * 200 + " violin")
    browser.find_element(By.CSS_SELECTOR, "#form .primary").click()
    until(lambda: text_of(browser, "status") == "1 document tagged.")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.find_element(By.ID, "show-dashboard").click()
    until(lambda: "by chance" in text_of(browser, "dashboard-view"))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    for cell in browser.find_elements(By.CSS_SELECTOR, "#dashboard-view td"):
        assert cell.size["height"] < 8 * 24, "a column so narrow that its words are torn"
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        colours = browser.execute_script(
            "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
        )
        ink, paper = (sum(map(int, re.findall(r"\d+", one)[:3])) for one in colours)
        assert (ink < paper) == (scheme == "light")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_text_is_written_from_right_to_left_where_its_script_is(browser, address):
    """The first word of a line stands on the right of the second."""
    from selenium.webdriver.common.by import By

    visit(browser, address)
    browser.find_element(By.NAME, "text").send_keys("שלום violin")
    browser.find_element(By.CSS_SELECTOR, "#form .primary").click()
    until(lambda: text_of(browser, "status") == "1 document tagged.")
    places = browser.execute_script(
        """return [...document.querySelectorAll("#list h3, #list .text")].map((one) => {
            const words = [one.textContent.indexOf("ש"), one.textContent.indexOf("v")].map((at) => {
                const nodes = document.createTreeWalker(one, NodeFilter.SHOW_TEXT), range = document.createRange();
                while (at >= nodes.nextNode().length) at -= nodes.currentNode.length;
                range.setStart(nodes.currentNode, at);
                range.setEnd(nodes.currentNode, at + 1);
                return range.getBoundingClientRect().left;
            });
            return words[0] - words[1];
        });"""
    )
    assert len(places) == 2
    assert min(places) > 0, places


def test_everything_has_a_name_for_screen_readers(browser, address):
    from selenium.webdriver.common.by import By

    visit(browser, address)
    browser.find_element(By.NAME, "text").send_keys("a violin")
    browser.find_element(By.CSS_SELECTOR, "#form .primary").click()
    until(lambda: text_of(browser, "status") == "1 document tagged.")
    for element in browser.find_elements(By.CSS_SELECTOR, "button, input, textarea, select, progress"):
        if element.is_displayed():
            assert element.accessible_name.strip(), element.get_attribute("outerHTML")
    assert browser.find_element(By.ID, "status").get_attribute("aria-live") == "polite"
    assert browser.execute_script("return document.documentElement.lang") == "en"


# The least contrast between a text, or the edge of a field, and what is behind it, with the element that has it.
CONTRAST = """
const luminance = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, place) =>
  sum + weight * (c[place] / 255 <= 0.03928 ? c[place] / 255 / 12.92 : ((c[place] / 255 + 0.055) / 1.055) ** 2.4), 0);
const colour = (text) => text.match(/[\\d.]+/g).map(Number);
const behind = (one) => {
  for (; one; one = one.parentElement) {
    const found = colour(getComputedStyle(one).backgroundColor);
    if (found[3] !== 0) return found;
  }
};
const ratio = (a, b) => {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
};
const least = { text: [99, ""], edge: [99, ""] };
const note = (kind, value, one) => {
  if (value < least[kind][0]) least[kind] = [value, one.outerHTML.slice(0, 120)];
};
for (const one of document.querySelectorAll("body *")) {
  if (!one.checkVisibility() || one.closest(":disabled") || one.closest(".skip, svg, datalist, option")) continue;
  const style = getComputedStyle(one);
  const own = behind(one), around = behind(one.parentElement);
  const hasText = (node) => node.nodeType === 3 && node.data.trim();
  if ([...one.childNodes].some(hasText)) note("text", ratio(colour(style.color), own), one);
  if (one.placeholder) note("text", ratio(colour(getComputedStyle(one, "::placeholder").color), own), one);
  if (one.matches("textarea, select, input[type=text], form button"))
    note("edge", Math.max(ratio(colour(style.borderColor), around), ratio(own, around)), one);
}
return least;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_stands_out_from_what_is_behind_it(browser, address, scheme):
    """WCAG 2.1 AA: 4.5 for texts, 3 for the edges of fields and buttons."""
    from selenium.webdriver.common.by import By

    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    visit(browser, address)
    browser.find_element(By.NAME, "text").send_keys(TEXT)
    browser.find_element(By.CSS_SELECTOR, "#form .primary").click()
    until(lambda: browser.find_elements(By.CSS_SELECTOR, "mark"))
    browser.find_element(By.CSS_SELECTOR, "[data-key^=yes]").click()
    browser.find_element(By.CSS_SELECTOR, "[data-key='no 1']").click()
    views = [browser.execute_script(CONTRAST)]
    browser.find_element(By.ID, "show-dashboard").click()
    until(lambda: "Requests per minute" in text_of(browser, "dashboard-view"))
    views.append(browser.execute_script(CONTRAST))
    for found in views:
        assert found["text"][0] >= 4.5, found
        assert found["edge"][0] >= 3, found
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_focus_is_never_lost_and_messages_stay_in_sight(browser, address):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    def focused():
        return browser.execute_script("const f = document.activeElement; return f.dataset.key || f.id || f.tagName")

    visit(browser, address)
    before = until(lambda: text_of(browser, "corrections-summary"))
    browser.find_element(By.NAME, "text").send_keys(TEXT + " anchor" * 400, Keys.CONTROL, Keys.ENTER)
    until(lambda: text_of(browser, "status") == "1 document tagged.")
    browser.find_element(By.CSS_SELECTOR, "[data-key=save]").send_keys(Keys.ENTER)
    until(lambda: text_of(browser, "status") == "The correction is stored.")
    browser.find_element(By.CSS_SELECTOR, "[data-key=undo]").send_keys(Keys.ENTER)
    until(lambda: text_of(browser, "status") == "The correction is undone.")
    assert focused() == "save"
    until(lambda: text_of(browser, "corrections-summary") == before)
    browser.execute_script("window.scrollTo(0, document.body.scrollHeight)")
    assert browser.execute_script("return document.getElementById('status').getBoundingClientRect().top") >= 0
    browser.find_element(By.CSS_SELECTOR, "[data-key=save]").send_keys(Keys.ENTER)
    until(lambda: text_of(browser, "corrections-summary") != before)
    browser.find_element(By.CSS_SELECTOR, "#history summary").send_keys(Keys.ENTER)
    browser.find_element(By.CSS_SELECTOR, "#corrections-list button").send_keys(Keys.ENTER)
    until(lambda: text_of(browser, "corrections-summary") == before)
    assert focused() == "corrections-title"


def test_words_against_a_tag_are_named_and_not_only_coloured(browser, address):
    from selenium.webdriver.common.by import By

    visit(browser, address)
    browser.find_element(By.NAME, "text").send_keys(TEXT)
    browser.find_element(By.CSS_SELECTOR, "#form .primary").click()
    until(lambda: browser.find_elements(By.CSS_SELECTOR, "mark.against"))
    against = {one.text.lower() for one in browser.find_elements(By.CSS_SELECTOR, "mark.against")}
    _, _, named = browser.find_element(By.CSS_SELECTOR, "[data-why]").text.partition("Against it: ")
    assert set(named.rstrip(".").split(", ")) == against
