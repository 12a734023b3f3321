"""The HTTP API, against the library's own answers."""

import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image, ImageOps

import chmnet
from chmnet.annotation.choice import choose, make_guess
from chmnet.annotation.coco import doubtful_keypoints
from chmnet.annotation.records import Moved
from chmnet.config import CorrelationConfig
from chmnet.features import describe_view
from chmnet.formats import read_npz
from chmnet.matcher import Matcher, MatchResult
from chmnet.pictures import Picture, View, to_picture
from chmnet.viz.kernels import draw_kernels, titled_kernels
from chmnet.web.app import create_app
from chmnet.web.container import unpack
from chmnet.web.settings import Settings
from chmnet.weights import load_model, save_model

from .conftest import ADDRESS, DONKEY, EXAMPLES, ZEBRA, assert_refused, load, picture_file

POINTS = [[7.0, 72.0], [85.0, 44.0], [178.25, 38.5]]
NOBODY = "0" * 32


@pytest.fixture(scope="module")
def result() -> MatchResult:
    return chmnet.match(DONKEY, ZEBRA)


@pytest.fixture
def pair(client: TestClient) -> str:
    return f"/api/pairs/{load(client, DONKEY.read_bytes())}/{load(client, ZEBRA.read_bytes())}"


def test_page_and_its_files(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert 'src="/static/main.js"' in page.text
    for file in ("main.js", "style.css", "icon.svg"):
        assert client.get(f"/static/{file}").status_code == 200
    assert "apipage.js" in client.get("/api").text


def test_the_page_holds_no_inline_script_or_style_and_names_no_other_host() -> None:
    folder = EXAMPLES.parent / "src" / "chmnet" / "web" / "static"
    for file in folder.iterdir():
        text = file.read_text("utf-8")
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", ""), file
        assert "https://" not in text, file
        if file.suffix == ".html":
            assert "<style" not in text
            assert " style=" not in text
            assert " on" not in text.replace(" one", "").replace(" only", "").replace(" on ", "")
            assert text.count("<script") == text.count('<script type="module" src="/static/')


def test_status_and_models(client: TestClient) -> None:
    status = client.get("/api/status").json()
    assert status["version"] == chmnet.__version__
    assert "image/png" in status["types"]
    models = {model["name"]: model for model in client.get("/api/models").json()}
    assert models["chmnet-lite"]["default"]
    assert models["hough-prior-iso"]["kernel"] == "iso"
    assert models["hough-prior-6d"]["scales"]
    assert models["nearest-neighbour"]["kernel"] is None


def test_examples(client: TestClient) -> None:
    examples = client.get("/api/examples").json()
    titles = {picture["id"]: picture["title"] for picture in examples["pictures"]}
    assert next((titles[a], titles[b]) for a, b in examples["pairs"]) == ("donkey", "zebra")
    url = next(picture["url"] for picture in examples["pictures"] if picture["title"] == "donkey")
    file = client.get(url)
    assert file.content == DONKEY.read_bytes()
    assert file.headers["content-type"] == "image/png"
    assert_refused(client.get(f"/api/examples/{NOBODY}"), 404, "no such example")


def test_match_two_files_equals_the_library(client: TestClient, result: MatchResult) -> None:
    files = {"source": DONKEY.read_bytes(), "target": ZEBRA.read_bytes()}
    answer = client.post("/api/match", files=files, data={"points": json.dumps(POINTS)})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    expected = result.transfer(POINTS)
    np.testing.assert_allclose([row["target"] for row in found["matches"]], expected.target, atol=0.01)
    np.testing.assert_allclose([row["confidence"] for row in found["matches"]], expected.confidence, atol=1e-3)
    assert found["source_size"] == [161, 200]
    best = client.post("/api/match", files=files, data={"top": "7"}).json()["matches"]
    np.testing.assert_allclose([row["target"] for row in best], result.matches(7).target, atol=0.01)


def test_pair_for_the_page_holds_positions_and_votes(client: TestClient, pair: str, result: MatchResult) -> None:
    answer = client.get(pair)
    assert answer.status_code == 200, answer.text
    header, blocks = unpack(answer.content)
    assert header["source_grid"] == [30, 30]
    np.testing.assert_allclose(blocks["positions"], result.forward.positions, atol=1e-4)
    np.testing.assert_allclose(blocks["confidence"], result.confidence, atol=1e-3)
    assert blocks["likelihood"].shape == (900, 900)
    assert len(answer.content) < 0.85e6


def test_a_known_picture_is_not_computed_again(client: TestClient) -> None:
    service = client.app.state.service  # type: ignore[attr-defined]
    first, second, third = (load(client, picture_file(seed=seed)) for seed in (1, 2, 3))
    computed = service.features.computed
    assert unpack(client.get(f"/api/pairs/{first}/{second}?poses=upright").content)[0]["milliseconds"] > 0
    assert service.features.computed == computed + 2
    client.get(f"/api/pairs/{first}/{third}?poses=upright")
    assert service.features.computed == computed + 3
    assert unpack(client.get(f"/api/pairs/{first}/{second}?poses=upright").content)[0]["milliseconds"] is None
    client.get(f"/api/pairs/{first}/{second}")
    assert service.features.computed == computed + 4  # the mirrored target


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        ({"poses": "upright"}, {}),
        ({}, {}),
        ({"poses": "any"}, {"poses": "any"}),
        ({"poses": "mirrored"}, {}),
        ({"poses": "mirrored", "target_box": "5,5,195,145"}, {"boxes": (None, (5, 5, 195, 145))}),
        ({"target_box": "5,5,195,145"}, {"boxes": (None, (5, 5, 195, 145))}),
        ({"source_box": "0,0,120.5,161"}, {"boxes": ((0, 0, 120.5, 161), None)}),
        ({"place": "found"}, {"place": "found"}),
    ],
    ids=str,
)
def test_poses_and_boxes_are_those_of_the_library(
    asked: dict[str, str], options: dict[str, Any], client: TestClient
) -> None:
    """The target is turned about: every answer is in pixels of the pictures as they were sent."""
    file = io.BytesIO()
    zebra, turned = to_picture(ZEBRA), asked.get("poses") == "any"
    (zebra.rotate(90, expand=True) if turned else ImageOps.mirror(zebra)).save(file, format="PNG")
    poses = {"poses": "upright"} if asked.get("poses") == "upright" else {}
    target = View(Picture(file.getvalue()), mirrored=asked.get("poses") == "mirrored")
    expected = Matcher().match(DONKEY, target, **options, **poses)
    pair = f"/api/pairs/{load(client, DONKEY.read_bytes())}/{load(client, file.getvalue())}"
    header, blocks = unpack(client.get(pair, params=asked).content)
    assert header["target_view"] == json.loads(json.dumps(describe_view(expected.target)))
    assert header["pose"]["mirrored"] == (asked.get("poses") not in ("upright", "any"))
    assert header["pose"]["turn"] == (270 if turned else 0)
    if expected.pose_probability is None:
        assert header["pose"]["probability"] is None
    else:
        assert header["pose"]["probability"] == pytest.approx(expected.pose_probability, abs=0.02)
    np.testing.assert_allclose(blocks["positions"], expected.forward.positions, atol=0.02)
    assert header["same_kind"] == pytest.approx(expected.same_kind, abs=0.02)
    best = client.get(f"{pair}/matches", params={**asked, "top": 5}).json()
    assert best["same_kind"] == header["same_kind"]
    assert best["pose"] == header["pose"]
    assert best["source_area"] == (None if expected.source.area is None else list(expected.source.area))
    assert best["target_area"] == (None if expected.target.area is None else list(expected.target.area))
    dense = np.load(io.BytesIO(client.get(f"{pair}/flow.npz", params=asked).content))
    np.testing.assert_allclose(dense["flow"], expected.flow(), atol=2)
    warped = np.asarray(Image.open(io.BytesIO(client.get(f"{pair}/warp.png", params=asked).content))).astype(int)
    assert np.abs(warped - np.asarray(expected.warp())).mean() < 2
    fields = {**asked, "points": json.dumps(POINTS)}
    files = {"source": DONKEY.read_bytes(), "target": file.getvalue()}
    found = client.post("/api/match", files=files, data=fields).json()
    np.testing.assert_allclose(
        [row["target"] for row in found["matches"]], expected.transfer(POINTS).target, atol=1
    )
    hidden, known = [row["unmatched"] for row in found["matches"]], expected.unmatched_at(POINTS)
    assert hidden == [None] * 3 if known is None else hidden == pytest.approx(known.tolist(), abs=0.05)
    assert found["pose"] == header["pose"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"poses": "sideways"}, "poses"),
        ({"place": "nowhere"}, "place"),
        ({"source_box": "1,2,3"}, "source_box must be left,top,right,bottom"),
        ({"target_box": "a,b,c,d"}, "target_box must be"),
        ({"target_box": "5,5,5,9"}, "target_box must be a box within the picture of 200×"),
        ({"source_box": "-1,0,50,50"}, "source_box must be a box within the picture of 200×161 pixels"),
        ({"source_box": "0,0,201,50"}, "source_box must be a box within"),
        ({"source_box": "nan,0,20,50"}, "source_box must be a box within"),
        ({"source_box": "0,0,inf,50"}, "source_box must be a box within"),
    ],
    ids=str,
)
def test_bad_poses_and_boxes_are_refused(asked: dict[str, str], words: str, client: TestClient, pair: str) -> None:
    assert_refused(client.get(pair, params=asked), 422, words)
    files = {"source": DONKEY.read_bytes(), "target": ZEBRA.read_bytes()}
    assert_refused(client.post("/api/match", files=files, data=asked), 422, words)


def test_a_large_picture_is_decoded_once_for_all_its_poses(client: TestClient) -> None:
    service = client.app.state.service  # type: ignore[attr-defined]
    first, second = (load(client, picture_file(400, 300, seed)) for seed in (21, 22))
    decoded, real = [], service.decoder.decode

    def decode(data: bytes, *arguments: Any, **options: Any) -> Any:
        decoded.append(options)
        return real(data, *arguments, **options)

    service.decoder.decode = decode
    try:
        answer = client.get(f"/api/pairs/{first}/{second}", params={"poses": "any", "target_box": "10,10,300,200"})
    finally:
        service.decoder.decode = real
    assert answer.status_code == 200
    assert decoded == [{"side": 1536}] * 2


def test_a_model_of_another_input_size_decodes_the_file_again(tmp_path: Path) -> None:
    file = tmp_path / "small.safetensors"
    save_model(load_model("nearest-neighbour", changes={"image_size": (160, 128)}), file)
    app = create_app(Settings(models={"small": file}))
    with TestClient(app, base_url=ADDRESS) as client:
        pair = [load(client, path.read_bytes()) for path in (DONKEY, ZEBRA)]
        answer = client.get(f"/api/pairs/{pair[0]}/{pair[1]}?model=small")
        decoded: list[bytes] = []
        app.state.service.decoder.decode = decoded.append
        client.get(f"/api/pairs/{pair[1]}/{pair[0]}?model=small")
    expected = chmnet.match(DONKEY, ZEBRA, model=file)
    np.testing.assert_allclose(unpack(answer.content)[1]["positions"], expected.forward.positions, atol=1e-4)
    assert decoded == []  # the features of both are known


def test_matches_flow_and_warp(client: TestClient, pair: str, result: MatchResult, tmp_path: Path) -> None:
    found = client.get(f"{pair}/matches?top=5").json()["matches"]
    np.testing.assert_allclose([row["source"] for row in found], result.matches(5).source, atol=0.01)
    file = tmp_path / "flow.npz"
    file.write_bytes(client.get(f"{pair}/flow.npz").content)
    dense = read_npz(file)
    np.testing.assert_allclose(dense.flow, result.flow(), atol=0.01)
    np.testing.assert_allclose(dense.confidence, result.confidence_at(), atol=1e-3)
    assert (dense.source_size, dense.target_size) == (result.source_size, result.target_size)
    file.write_bytes(client.get(f"{pair}/flow.npz?side=50").content)
    np.testing.assert_allclose(read_npz(file).flow, result.flow((40, 50)), atol=0.01)
    whole = np.asarray(Image.open(io.BytesIO(client.get(f"{pair}/warp.png").content))).astype(int)
    assert np.abs(whole - np.asarray(result.warp())).mean() < 0.5
    warped = Image.open(io.BytesIO(client.get(f"{pair}/warp.png?side=100").content))
    assert max(warped.size) == 100
    assert abs(warped.width / warped.height - result.target_size[1] / result.target_size[0]) < 0.05


def test_several_things(client: TestClient, herd: Path) -> None:
    address = f"/api/pairs/{load(client, DONKEY.read_bytes())}/{load(client, herd.read_bytes())}/matches"
    expected = [each.transfer(POINTS) for each in chmnet.match(DONKEY, herd).instances(3)]
    rows = client.get(address, params={"instances": 3, "points": json.dumps(POINTS)}).json()["matches"]
    assert [row["instance"] for row in rows] == [1, 1, 1, 2, 2, 2]
    targets = np.concatenate([each.target for each in expected])
    np.testing.assert_allclose([row["target"] for row in rows], targets, atol=0.05)
    best = client.get(address, params={"instances": 3, "top": 20}).json()["matches"]
    assert {row["instance"] for row in best} == {1, 2}
    files = {"source": DONKEY.read_bytes(), "target": herd.read_bytes()}
    form = client.post("/api/match", files=files, data={"instances": "3", "points": json.dumps(POINTS)}).json()
    assert form["matches"] == rows
    assert client.get(address, params={"top": 1}).json()["matches"][0]["instance"] is None


def test_winning_scales(client: TestClient, pair: str, result: MatchResult) -> None:
    rows = client.get(f"{pair}/matches?model=hough-prior-6d").json()["matches"]
    network = load_model(
        "hough-prior",
        changes={"correlation": {"scales": CorrelationConfig().scales}, "matching": {"scale_window": 1}},
    )
    own = Matcher(network).match(DONKEY, ZEBRA, scales=True)
    expected = own.winning_scales(own.matches(300))
    assert len(np.unique(expected)) > 1  # different sizes to draw
    np.testing.assert_allclose([row["scales"] for row in rows], expected, atol=1e-6)
    assert client.get(f"{pair}/matches?top=2").json()["matches"][0]["scales"] is None


def test_kernels_are_those_of_the_command(client: TestClient) -> None:
    answer = client.get("/api/models/hough-prior-iso/kernel.png")
    assert answer.headers["content-type"] == "image/png"
    network = load_model("hough-prior", changes={"matching": {"first_sharing": "iso", "last_sharing": "iso"}})
    expected = draw_kernels(titled_kernels("hough-prior-iso", network.head.first, network.head.last))
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(answer.content))), np.asarray(expected))
    assert client.get("/api/models/hough-prior-iso/kernel.png").content == answer.content
    assert_refused(client.get("/api/models/nearest-neighbour/kernel.png"), 422, "no Hough layers")
    assert_refused(client.get("/api/models/wonder/kernel.png"), 404, "there is no model")


@pytest.mark.parametrize("model", ["hough-prior-full", "nearest-neighbour"])
def test_another_model_can_be_chosen(client: TestClient, pair: str, model: str) -> None:
    assert unpack(client.get(f"{pair}?model={model}").content)[0]["model"] == model


# ---------------------------------------------------------------- propagation


def wait(client: TestClient, job: dict[str, Any]) -> dict[str, Any]:
    for _ in range(400):
        if job["state"] != "running":
            return job
        time.sleep(0.02)
        job = client.get(f"/api/propagations/{job['id']}").json()
    raise AssertionError("the propagation does not end")


def test_propagation_carries_points_to_many(client: TestClient, result: MatchResult) -> None:
    source = load(client, DONKEY.read_bytes())
    targets = [load(client, ZEBRA.read_bytes()), load(client, picture_file())]
    wish = {"sources": [{"picture": source, "points": POINTS}], "targets": targets}
    answer = client.post("/api/propagations", json=wish)
    assert answer.status_code == 202, answer.text
    job = wait(client, answer.json())
    assert (job["state"], job["done"], job["total"]) == ("done", 2, 2)
    assert [picture["picture"] for picture in job["pictures"]] == targets
    expected = result.transfer(POINTS)
    found = job["pictures"][0]
    np.testing.assert_allclose(found["points"], expected.target, atol=0.01)
    np.testing.assert_allclose(found["confidences"], expected.confidence, atol=1e-3)
    guess = make_guess(result, np.array(POINTS), [])
    moved = Moved("", *expected[1:], unmatched=guess.unmatched, foreground=guess.foreground)
    assert found["doubtful"] == doubtful_keypoints(moved, result.target_size, 0.5).tolist()
    np.testing.assert_allclose(found["foreground"], guess.foreground, atol=0.01)
    assert found["score"] == pytest.approx(expected.confidence.mean(), abs=2e-3)
    assert_refused(client.get(f"/api/propagations/{NOBODY}"), 404)
    client.cookies.clear()
    assert_refused(client.get(f"/api/propagations/{job['id']}"), 404, "no such propagation")


def test_of_several_labelled_pictures_the_best_is_taken(client: TestClient, result: MatchResult) -> None:
    sources = [load(client, path.read_bytes()) for path in (DONKEY, EXAMPLES / "sedan.png")]
    labels = [[*POINTS, None], [[30.0, 30.0], None, [60.0, 50.0], None]]
    wish = {
        "sources": [{"picture": key, "points": points} for key, points in zip(sources, labels, strict=True)],
        "targets": [load(client, ZEBRA.read_bytes())],
    }
    (found,) = wait(client, client.post("/api/propagations", json=wish).json())["pictures"]
    results = result, chmnet.match(EXAMPLES / "sedan.png", ZEBRA)
    rows = [np.array([point or (np.nan, np.nan) for point in points]) for points in labels]
    expected = choose("", [[make_guess(*each, [])] for each in zip(results, rows, strict=True)])
    assert found["points"][3] is None
    np.testing.assert_allclose(found["points"][:3], expected.points[:3], atol=0.05)
    np.testing.assert_allclose(found["confidences"], expected.confidence, atol=5e-3)
    assert found["sources"] == [sources[number] for number in expected.sources]
    assert found["pose"]["mirrored"] == expected.pose.mirrored
    wish["sources"][1]["points"].pop()  # type: ignore[index, attr-defined]
    assert_refused(client.post("/api/propagations", json=wish), 422, "different numbers of points")


def test_propagation_inside_of_boxes(client: TestClient) -> None:
    source, target = load(client, DONKEY.read_bytes()), load(client, ZEBRA.read_bytes())
    box = [20.0, 10.0, 150.0, 140.0]
    wish = {"sources": [{"picture": source, "points": POINTS}], "targets": [target], "boxes": {target: box}}
    (found,) = wait(client, client.post("/api/propagations", json=wish).json())["pictures"]
    result = chmnet.Matcher().match(DONKEY, ZEBRA, boxes=(None, tuple(box)))
    np.testing.assert_allclose(found["points"], result.transfer(POINTS).target, atol=0.5)
    wish["boxes"] = {source: box}
    assert_refused(client.post("/api/propagations", json=wish), 422, "no target")
    wish["boxes"] = {target: [0.0, 0.0, 9999.0, 5.0]}
    assert_refused(client.post("/api/propagations", json=wish), 422, "a box must be a box within the picture of")
    wish["boxes"] = {target: [0.0, 0.0, 5.0]}
    assert_refused(client.post("/api/propagations", json=wish), 422)


def test_propagation_exchanges_left_and_right_by_name(client: TestClient) -> None:
    source = load(client, DONKEY.read_bytes())
    buffer = io.BytesIO()
    ImageOps.mirror(Image.open(DONKEY).convert("RGB")).save(buffer, "PNG")
    points = [[60.0, 60.0], [100.0, 60.0], [80.0, 90.0]]
    wish = {"sources": [{"picture": source, "points": points}], "targets": [load(client, buffer.getvalue())]}
    (plain,) = wait(client, client.post("/api/propagations", json=wish).json())["pictures"]
    wish["names"] = ["left", "right", "middle"]  # type: ignore[assignment]
    (named,) = wait(client, client.post("/api/propagations", json=wish).json())["pictures"]
    assert plain["pose"]["mirrored"]
    assert named["pose"]["mirrored"]
    assert named["pose"]["turn"] == 0
    assert [plain["points"][row] for row in (1, 0, 2)] == named["points"]
    wish["names"] = ["left", "right"]  # type: ignore[assignment]
    assert_refused(client.post("/api/propagations", json=wish), 422, "2 names of 3 points")


def test_propagation_one_at_a_time_and_can_be_ended(client: TestClient) -> None:
    source = load(client, DONKEY.read_bytes())
    targets = [load(client, picture_file(seed=seed)) for seed in range(5)]
    wish = {"sources": [{"picture": source, "points": POINTS}], "targets": targets}
    job = client.post("/api/propagations", json=wish).json()
    assert_refused(client.post("/api/propagations", json=wish), 409, "already running")
    ended = client.delete(f"/api/propagations/{job['id']}").json()
    assert ended["state"] == "cancelled"
    assert ended["done"] < 5
    again = client.post("/api/propagations", json=wish).json()
    assert client.delete("/api/session").status_code == 204  # ends the job with the session
    assert_refused(client.get(f"/api/propagations/{again['id']}"), 404)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"points": [[1e6, 0]]}, 422),
        ({"points": []}, 422),
        ({"points": [[1, 2, 3]]}, 422),
        ({"points": [["x", 2]]}, 422),
        ({"picture": NOBODY}, 404),
        ({"targets": [NOBODY]}, 404),
        ({"targets": ["../../etc/passwd"]}, 422),
        ({"model": "wonder"}, 404),
    ],
)
def test_propagation_refuses(client: TestClient, change: dict[str, Any], status: int) -> None:
    source = load(client, DONKEY.read_bytes())
    labelled = {"picture": source, "points": POINTS, **change}
    wish = {"sources": [labelled], "targets": [source], **change}
    assert_refused(client.post("/api/propagations", json=wish), status)


def test_propagation_bodies_are_counted(client: TestClient) -> None:
    def pieces():  # type: ignore[no-untyped-def]
        yield b'{"model": "'
        yield from (b"x" * 2**18 for _ in range(8))

    assert_refused(client.post("/api/propagations", content=pieces()), 413, "larger than 1 MB")
    assert_refused(client.post("/api/propagations", content=b"{"), 422, "JSON")


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/api/pairs/{NOBODY}/{NOBODY}", 404),
        (f"/api/pairs/{NOBODY}/{NOBODY}?model=wonder", 404),
        ("/api/pairs/../../etc", 404),
        ("/api/pairs/x/y", 422),
        ("/api/nothing", 404),
        ("/static/none.js", 404),
        ("/static/..%2fapp.py", 404),
    ],
)
def test_wrong_addresses(client: TestClient, path: str, status: int) -> None:
    assert_refused(client.get(path), status)


def test_numbers_out_of_range(client: TestClient, pair: str) -> None:
    assert_refused(client.get(f"{pair}/matches?top=0"), 422, "top")
    assert_refused(client.get(f"{pair}/matches?instances=21"), 422, "instances")
    assert_refused(client.get(f"{pair}/matches?points=here"), 422, "rows of two")
    assert_refused(client.get(f"{pair}/warp.png?side=100000"), 422, "side")


def test_wrong_method(client: TestClient) -> None:
    answer = client.put("/api/models")
    assert_refused(answer, 405)
    assert "GET" in answer.headers["allow"]
    assert client.put(f"/api/propagations/{NOBODY}").headers["allow"] == "DELETE, GET"


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"points": "[[1, 2, 3]]"}, 422, "rows of two"),
        ({"points": "[[NaN, 2]]"}, 422, "rows of two"),
        ({"points": "nonsense"}, 422, "rows of two"),
        ({"points": "[" * 100_000}, 422, "rows of two"),
        ({"points": json.dumps([[1, 2]] * 2001)}, 413, "2001 points"),
        ({"top": "0"}, 422, "top"),
        ({"top": "many"}, 422, "top"),
        ({"instances": "0"}, 422, "instances"),
        ({"instances": "21"}, 422, "instances"),
        ({"model": "../../etc/passwd"}, 404, "there is no model"),
        ({"model": "x" * (2**20 + 1)}, 400, "form"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_match_refuses_fields(client: TestClient, fields: dict[str, str], status: int, words: str) -> None:
    files = {"source": DONKEY.read_bytes(), "target": ZEBRA.read_bytes()}
    assert_refused(client.post("/api/match", files=files, data=fields), status, words)


def test_match_refuses_other_bodies(client: TestClient) -> None:
    assert_refused(client.post("/api/match", json={"source": 1}), 415, "multipart")
    assert_refused(client.post("/api/match", files={"source": DONKEY.read_bytes()}), 422, "target")
    assert_refused(client.post("/api/match", files={"source": b"1", "target": b"2"}), 415, "accepted type")
    header = {"Content-Type": "multipart/form-data; boundary=x"}
    assert_refused(client.post("/api/match", content=b"--x\r\nnonsense", headers=header), 422, "form")
    assert_refused(client.post("/api/match", content=b"", headers={"Content-Type": "multipart/form-data"}), 400)


def test_unexpected_errors_show_nothing_of_the_inside(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(client.app.state.service.sessions, "sweep", broken)  # type: ignore[attr-defined]
    answer = client.get(f"/api/pairs/{NOBODY}/{NOBODY}")
    assert_refused(answer, 500, "internal server error")
    assert "secret" not in answer.text
    assert "secret detail" in caplog.text
