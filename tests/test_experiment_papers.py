"""Label sets of papers: the generator and loaders, the rivals against independent answers, the experiment end to end."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.io import loadmat, savemat
from sklearn.linear_model import LogisticRegression, Ridge, orthogonal_mp
from typer.testing import CliRunner

from kernelbp.cli import app
from kernelbp.datasets import CitationNetwork, citation_network, load_citations_mat, load_citations_text
from kernelbp.datasets import _mat5 as mat5_module
from kernelbp.datasets import citations as citations_module
from kernelbp.errors import InputError
from kernelbp.experiments import multilabel, papers, papers_methods
from kernelbp.experiments.report import save
from kernelbp.experiments.study import Options, Study
from kernelbp.figures.papers import papers as drawn

# ---------------------------------------------------------------------- the generator


def test_generated_network_has_the_shape_the_paper_describes():
    network = citation_network(seed=0)
    degrees = network.degrees
    lengths = np.array([len(labels) for labels in network.labels])
    assert len(network) == 20_000 and network.indicators.shape == (20_000, 367)
    assert (degrees < 10).mean() > 0.85 and 200 < degrees.max() < 500
    assert lengths.min() == 1 and lengths.max() == 5
    counts = np.sort(network.indicators.sum(axis=0))[::-1]
    assert counts[0] > 20 * np.median(counts[-50:])
    assert (network.edges[:, 0] < network.edges[:, 1]).all()
    assert len(np.unique(network.edges, axis=0)) == len(network.edges)


def test_generated_citations_join_papers_with_common_labels():
    shared = {}
    for homophily in (0.0, 0.8):
        network = citation_network(2000, 50, seed=1, homophily=homophily)
        first, second = (network.indicators[end] for end in network.edges.T)
        shared[homophily] = float((np.asarray(first.multiply(second).sum(axis=1)) > 0).mean())
    assert shared[0.0] < 0.3 and shared[0.8] > 0.7


def test_same_seed_same_network():
    one, same, other = (citation_network(200, 10, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.edges, same.edges)
    assert (one.words != same.words).nnz == 0 and list(one.labels) == list(same.labels)
    assert not np.array_equal(one.edges, other.edges)


@pytest.mark.parametrize(
    "wrong", [{"n_papers": 1}, {"n_labels": 2.5}, {"homophily": 1.5}, {"topicality": -1}, {"mean_degree": 0}]
)
def test_generator_names_a_wrong_argument(wrong):
    with pytest.raises(InputError, match=f"^{next(iter(wrong))}: expected"):
        citation_network(**wrong)


# ---------------------------------------------------------------------- loaders

LABELS = np.array([[1, 0], [1, 1], [0, 1], [0, 0]])
WORDS = np.array([[2, 0, 1], [0, 1, 0], [0, 0, 3], [1, 1, 1]])
NETWORK = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]])


@pytest.mark.parametrize("form", [np.asarray, sparse.csc_matrix])
@pytest.mark.parametrize("packed", [True, False])
def test_mat_file_is_read_as_written(tmp_path, form, packed):
    path = tmp_path / "some.mat"
    content = {"network": form(NETWORK * 1.0), "attrb": form(WORDS * 1.0), "group": form(LABELS * 1.0)}
    savemat(path, content, do_compression=packed)
    network = load_citations_mat(path)
    # Loops are dropped, both directions are one citation.
    np.testing.assert_array_equal(network.edges, [[0, 1], [1, 2], [1, 3]])
    np.testing.assert_array_equal(network.words.toarray(), WORDS)
    assert list(network.labels) == [{0}, {0, 1}, {1}, set()]
    np.testing.assert_array_equal(network.indicators.toarray(), LABELS)


def test_real_mat_file(shared_data):
    network = load_citations_mat(shared_data / "citations" / "acmv9.mat")
    assert repr(network) == "CitationNetwork(9,360 papers, 15,556 citations, 6,775 words, 5 labels)"
    assert {len(labels) for labels in network.labels} == {1, 2} and network.degrees.max() == 73


def mat(tmp_path: Path, **content) -> Path:
    path = tmp_path / "wrong.mat"
    savemat(path, content)
    return path


def test_wrong_mat_files_are_told_apart(tmp_path):
    good = {"network": NETWORK, "attrb": WORDS, "group": LABELS}
    for wrong, told in (
        ({"network": NETWORK, "attrb": WORDS}, "no variable 'group'"),
        ({**good, "attrb": WORDS[:3]}, "a row for each of 4 papers"),
        ({**good, "network": NETWORK[:, :3]}, "a row for each of 4 papers"),
        ({**good, "attrb": -WORDS}, "attrb holds negative"),
        ({**good, "attrb": WORDS * np.nan}, "attrb holds negative or infinite"),
        ({**good, "group": "text"}, "group is not a table of real numbers"),
        ({**good, "group": LABELS * 1j}, "group is not a table of real numbers"),
    ):
        with pytest.raises(InputError, match=told):
            load_citations_mat(mat(tmp_path, **wrong))
    with pytest.raises(InputError, match="no such file; expected a MATLAB 5 file"):
        load_citations_mat(tmp_path / "none.mat")
    whole = mat(tmp_path, **good).read_bytes()
    for content, told in (
        (whole[:-30], "truncated"),
        (b"word" * 200, "does not begin like one"),
        (b"", "does not begin like one"),
    ):
        path = tmp_path / "broken.mat"
        path.write_bytes(content)
        with pytest.raises(InputError, match=told):
            load_citations_mat(path)


def test_damaged_mat_files_never_raise_anything_else(tmp_path):
    # Not compressed, so that damage goes past the checksums: SciPy's own reader crashes on some of these.
    savemat(tmp_path / "whole.mat", {"network": sparse.csc_matrix(NETWORK), "attrb": WORDS, "group": LABELS})
    whole = bytearray((tmp_path / "whole.mat").read_bytes())
    rng = np.random.default_rng(0)
    path = tmp_path / "damaged.mat"
    for _ in range(500):
        damaged = bytearray(whole)
        for place in rng.integers(128, len(whole), size=3):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        with contextlib.suppress(InputError):
            assert isinstance(load_citations_mat(path), CitationNetwork)


def test_mat_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(citations_module, "_MOST_BYTES", 1 << 20)
    monkeypatch.setattr(mat5_module, "_CHUNK", 1 << 16)
    header = b"MATLAB 5.0".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    packed = zlib.compress(bytes(1 << 24))
    path = tmp_path / "bomb.mat"
    path.write_bytes(header + struct.pack("<II", 15, len(packed)) + packed)
    with pytest.raises(InputError, match="unpacks to more than"):
        load_citations_mat(path)


@pytest.mark.parametrize("inside", ["beside a variable", "in a variable"])
def test_mat_file_that_unpacks_to_millions_of_parts_is_not_taken_apart(tmp_path, inside):
    header = b"MATLAB 5.0".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    parts = struct.pack("<II", 1, 0) * (1 << 20)
    packed = zlib.compress(
        parts if inside == "beside a variable" else struct.pack("<II", 14, len(parts)) + parts
    )
    path = tmp_path / "parts.mat"
    path.write_bytes(header + struct.pack("<II", 15, len(packed)) + packed)
    tracemalloc.start()
    with pytest.raises(InputError):
        load_citations_mat(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 * len(parts)


def test_mat_file_with_a_shape_no_array_can_have_is_refused(tmp_path):
    head = struct.pack("<IIII", 6, 8, 6, 0) + struct.pack("<IIqqq", 12, 24, 1 << 40, 1 << 40, 0)
    matrix = head + struct.pack("<II8s", 1, 4, b"grid") + struct.pack("<II", 9, 0)
    header = b"MATLAB 5.0".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    path = tmp_path / "shape.mat"
    path.write_bytes(header + struct.pack("<II", 14, len(matrix)) + matrix)
    with pytest.raises(InputError, match="not a whole MATLAB 5 file"):
        mat5_module.read_tables(path, ("grid",), most_bytes=1 << 20, axes=3)


def test_mat_file_equals_scipys_reading(shared_data):
    path = shared_data / "citations" / "acmv9.mat"
    wanted = ("network", "attrb", "group")
    mine, theirs = mat5_module.read_tables(path, wanted, most_bytes=1 << 30), loadmat(path)
    for name in wanted:
        assert not (mine[name] != theirs[name]).sum()


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    content = {
        "texts": "# comment\na\tKernel methods, kernel means\nb\tGraph kernels\n\nc\tThe graph\n",
        "edges": "a b\nb\ta\nc b\n",
        "labels": "a\tlearning, graphs\nb\tgraphs\n",
    }
    for name, text in (content | files).items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


def test_text_files_are_read_as_written(tmp_path):
    network = load_citations_text(write(tmp_path))
    np.testing.assert_array_equal(network.edges, [[0, 1], [1, 2]])
    assert network.label_names == ("graphs", "learning")
    assert list(network.labels) == [{0, 1}, {0}, set()]
    # graph, kernel, kernels, means, methods; "the" is left out
    np.testing.assert_array_equal(network.words.toarray()[:, :2], [[0, 2], [1, 0], [1, 0]])


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"edges": "a b\na z\n"}, r"edges\.txt, line 2: paper 'z' is not in texts\.txt"),
        ({"edges": "a b c\n"}, r"edges\.txt, line 1: expected two ids"),
        ({"texts": "a words\n"}, r"texts\.txt, line 1: expected an id, a tab and a text"),
        ({"texts": "a\tone\na\ttwo\n"}, r"texts\.txt, line 2: paper 'a' comes twice"),
        ({"labels": "a\t ,\n"}, r"labels\.txt, line 1: .*label"),
        ({"labels": "a\tx\na\ty\n"}, r"labels\.txt, line 2: labels of paper 'a' come twice"),
        ({"labels": ""}, "at least one paper with labels"),
        ({"texts": "a\tthe\nb\tthe\nc\tof\n"}, "no words"),
    ],
)
def test_wrong_text_files_are_named_with_the_line(tmp_path, files, told):
    with pytest.raises(InputError, match=told):
        load_citations_text(write(tmp_path, **files))


def test_missing_and_foreign_text_files(tmp_path):
    with pytest.raises(InputError, match="which is none"):
        load_citations_text(tmp_path / "nowhere")
    folder = write(tmp_path / "some")
    (folder / "labels.txt").unlink()
    with pytest.raises(InputError, match=r"labels\.txt: no such file"):
        load_citations_text(folder)
    (folder / "texts.txt").write_bytes(b"\xff\xfe\x00\x01" * 9)
    with pytest.raises(InputError, match="not UTF-8"):
        load_citations_text(folder)


# ---------------------------------------------------------------------- rivals


def test_ridge_equals_scikit_learn_by_either_gram_matrix():
    rng = np.random.default_rng(0)
    for shape in ((30, 8), (8, 30)):
        words = sparse.random_array(shape, density=0.4, rng=rng, format="csr")
        targets = rng.standard_normal((shape[0], 3))
        weights, offsets = multilabel.ridge(words, targets, 0.7)
        fitted = Ridge(0.7).fit(words.toarray(), targets)
        np.testing.assert_allclose(weights, fitted.coef_.T, atol=1e-8)
        np.testing.assert_allclose(offsets, fitted.intercept_, atol=1e-8)


def test_matching_pursuit_picks_what_scikit_learn_picks():
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((20, 40))
    columns /= np.linalg.norm(columns, axis=0)
    vectors = rng.standard_normal((30, 20))
    order = multilabel.matching_pursuit(vectors, columns, 6)
    for size in (1, 3, 6):
        weights = orthogonal_mp(columns, vectors.T, n_nonzero_coefs=size)
        for mine, theirs in zip(order[:, :size], weights.T, strict=True):
            assert set(mine) == set(np.flatnonzero(theirs))


def test_spreading_equals_the_closed_form():
    rng = np.random.default_rng(0)
    edges = np.array([[0, 1], [1, 2], [2, 3], [0, 3], [3, 4]])
    step = multilabel.step_along(edges, 6)
    given = rng.random((6, 2))
    exact = 0.3 * np.linalg.solve(np.eye(6) - 0.7 * step.toarray(), given)
    np.testing.assert_allclose(multilabel.spread(step, given, 0.7), exact, atol=1e-10)


def test_correct_and_smooth_mends_a_prediction_that_is_wrong_everywhere():
    edges = np.array([[0, 1], [1, 2], [3, 4], [4, 5]])
    truth = np.repeat(np.eye(2), 3, axis=0)
    base = truth[::-1] * 0.2 + 0.4
    found = multilabel.correct_and_smooth(
        multilabel.step_along(edges, 6), base, truth, np.array([0, 3]), 0.8, 0.8
    )
    np.testing.assert_array_equal(found.argmax(axis=1), truth.argmax(axis=1))


def test_beyond_neighbours_counts_what_a_loop_over_papers_counts():
    rng = np.random.default_rng(0)
    size, kinds = 30, 3
    edges = np.unique(np.sort(rng.integers(size, size=(70, 2)), axis=1), axis=0)
    edges = edges[edges[:, 0] < edges[:, 1]]
    known = rng.random(size) < 0.6
    truth = np.eye(kinds)[rng.integers(kinds, size=size)] * known[:, None]
    beside = [np.r_[edges[edges[:, 0] == v, 1], edges[edges[:, 1] == v, 0]] for v in range(size)]
    usual = np.tile(truth.sum(axis=0) / known.sum(), (kinds, 1))
    for v in np.flatnonzero(known):
        usual[truth[v].argmax()] += truth[beside[v]].sum(axis=0)
    usual /= usual.sum(axis=1, keepdims=True)
    wanted = np.zeros((size, kinds))
    for u in range(size):
        for v in beside[u][known[beside[u]]]:
            others = [w for w in beside[v] if w != u and known[w]]
            gap = truth[others].sum(axis=0) - len(others) * usual[truth[v].argmax()]
            wanted[u] += gap / (len(others) + multilabel.FEW)
    np.testing.assert_allclose(multilabel.beyond_neighbours(edges, truth), wanted, atol=1e-12)


def test_recall_counts_by_hand():
    truth = sparse.csr_array([[1, 1, 0], [0, 0, 1]])
    one, every = multilabel.recall(np.array([[0, 2, 1], [0, 2, 1]]), truth)
    np.testing.assert_allclose(one, [0.5, 1, 1])
    np.testing.assert_allclose(every, [0.25, 0.75, 1])


def test_logistic_penalty_is_the_one_held_out_papers_prefer():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((200, 30))
    classes = (features[:, 0] + 0.3 * rng.standard_normal(200) > 0).astype(int)
    held_out = rng.random(200) < 0.25
    made, score = multilabel.best_logistic(features, classes, held_out)
    assert isinstance(made, LogisticRegression) and -np.log(2) < score < 0
    noise, _ = multilabel.best_logistic(features, rng.integers(2, size=200), held_out)
    assert min(multilabel.PENALTIES) == noise.C


def test_reduced_words_follow_the_seed():
    network = citation_network(300, 12, seed=0, n_words=200)
    first, same, other = (papers.Problem(network, 20, seed).own for seed in (0, 2**32, 1))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


# ---------------------------------------------------------------------- the experiment


def few_sets(tmp_path: Path) -> Path:
    """A network of four sets, as a .mat file: two communities in labels, words and citations."""
    rng = np.random.default_rng(0)
    size = 240
    topic = rng.integers(3, size=size)
    groups = np.eye(3)[topic]
    groups[::20, 0] = 1
    edges = rng.integers(size, size=(1200, 2))
    edges = edges[(topic[edges[:, 0]] == topic[edges[:, 1]]) | (rng.random(1200) < 0.1)]
    network = np.zeros((size, size))
    network[tuple(edges.T)] = 1
    words = rng.poisson(0.3 + 0.4 * np.repeat(np.eye(3), 10, axis=1)[topic])
    path = tmp_path / "few.mat"
    savemat(path, {"network": network, "attrb": words, "group": groups})
    return path


def test_experiment_on_few_sets_writes_its_report_and_resumes(tmp_path, monkeypatch):
    data, out = few_sets(tmp_path), tmp_path / "out"
    report = papers.run(Study("papers", Options(out, data)), dimensions=20, sizes=papers.TINY)
    page = save(report, out).read_text()
    assert {path.name for path in out.iterdir()} >= {
        "papers.png",
        "papers.svg",
        "papers.csv",
        "papers_curves.csv",
    }
    assert "recall@k" in page and "logistic regression, correct and smooth" in page
    rows = {row["method"]: row for row in report.tables[0].rows}
    for ours in (rows["kernel BP"], rows["kernel BP, best found"]):
        assert ours["recall@1 (one)"] > rows["most frequent labels"]["recall@1 (one)"] + 0.2
        assert ours["converged"] == "1 of 1"
    told = [claim.what for claim in report.claims]
    rivals = [name for name in rows if not name.startswith("kernel BP")]
    for rival in rivals:
        assert f"kernel BP above {rival}, recall@k (one)" in told
    two = papers_methods.TWO_STEPS
    for rival in (two, f"{two}, correct and smooth, best found", "label spreading, best found"):
        assert f"kernel BP, best found above {rival}, recall@k (one)" in told
    # A second run finds every case finished.
    monkeypatch.setattr(papers, "judged", lambda *case: pytest.fail("ran again"))
    again = papers.run(Study("papers", Options(out, data, resume=True)), dimensions=20, sizes=papers.TINY)
    assert again.tables[0].rows == report.tables[0].rows


def test_experiment_on_generated_sets(tmp_path):
    sizes = papers.Sizes(1, 1, 600, 70, 200)
    study = Study("papers", Options(tmp_path))
    problem = papers.Problem(papers.load(None, sizes, 0), 50, 0)
    assert not problem.few_sets
    report = papers.run(study, dimensions=50, sizes=sizes)
    rows = {row["method"]: row for row in report.tables[0].rows}
    ours, theirs = rows["kernel BP, random projection"], rows["regression, compressed sensing"]
    assert ours["recall@5 (all)"] > theirs["recall@5 (all)"]
    told = {claim.what: claim for claim in report.claims}
    assert len(told) == 2 + 2 * 6
    for kind in ("one", "all"):
        every_k = told[
            f"kernel BP, random projection above regression, compressed sensing, recall@k ({kind})"
        ]
        assert every_k.wanted.endswith("from 1 to 20")
    theirs = rows["regression, correct and smooth, best found"]
    last = told["kernel BP, random projection above regression, correct and smooth, best found, recall@20"]
    gaps = [ours[f"recall@20 ({kind})"] - theirs[f"recall@20 ({kind})"] for kind in ("one", "all")]
    assert last.holds == (min(gaps) > 0) and f"{gaps[1]:+.3f} (all)" in last.measured


def test_splits_label_all_papers_of_high_degree_and_a_third():
    network = citation_network(1500, 30, seed=0, n_words=50)
    problem = papers.Problem(network, 20, 0)
    seen = []
    for number in range(3):
        split = problem.split(number)
        assert not np.intersect1d(split.labelled, split.tested).size
        assert len(split.labelled) == 500 and len(split.tested) == 1000
        assert (network.degrees[split.tested] <= papers.ALWAYS).all()
        seen.append(tuple(split.tested))
    assert len(set(seen)) == 3


@pytest.mark.parametrize("few", [True, False])
def test_labels_of_tested_papers_are_not_read_by_any_method(few, tmp_path):
    """Other labels at the papers tested, the same answers."""
    network = (
        load_citations_mat(few_sets(tmp_path)) if few else citation_network(400, 70, seed=0, n_words=150)
    )
    problem = papers.Problem(network, 30, 0)
    assert problem.few_sets == few
    split = problem.split(0)
    labels = network.labels.copy()
    labels[split.tested] = np.roll(labels[split.tested], 7)
    changed = papers.Problem(
        CitationNetwork(network.edges, network.words, labels, network.label_names), 30, 0
    )
    assert np.array_equal(changed.split(0).tested, split.tested)
    for name, method in problem.methods().items():
        mine, theirs = method(split)[0], changed.methods()[name](changed.split(0))[0]
        np.testing.assert_array_equal(mine, theirs, err_msg=name)


def test_without_messages_the_belief_is_what_the_classifier_says(tmp_path):
    """Papers without citations: what they are softened with is weighed against the model's own marginal."""
    network = load_citations_mat(few_sets(tmp_path))
    alone = np.arange(40)
    edges = network.edges[~np.isin(network.edges, alone).any(axis=1)]
    problem = papers.Problem(
        CitationNetwork(edges, network.words, network.labels, network.label_names), 30, 0
    )
    split = problem.split(0)
    model, graph, _ = papers_methods.two_kinds(split, split.labelled, 0.3)
    tested = np.intersect1d(alone, split.tested)
    truth = np.zeros((len(problem.network), len(split.sets)))
    truth[split.labelled, split.classes] = 1.0
    features = np.hstack([problem.around, multilabel.beyond_neighbours(edges, truth)])
    classifier = multilabel.logistic(0.3).fit(features[split.labelled], split.classes)
    wanted = classifier.predict_proba(features[tested]) @ split.holds(split.sets[classifier.classes_])
    np.testing.assert_allclose(model.infer(graph).expect(split.holds)[tested], wanted, atol=2e-3)


def test_labels_two_steps_away_are_read_without_those_held_out(tmp_path, monkeypatch):
    """Their own classifier's C is chosen with the held-out papers' labels hidden, and none of them of high degree."""
    network = load_citations_mat(few_sets(tmp_path))
    split = papers.Problem(network, 20, 0).split(0)
    seen = []
    best = multilabel.best_logistic

    def noted(features, classes, held_out):
        seen.append((features, split.labelled[held_out]))
        return best(features, classes, held_out)

    monkeypatch.setattr(multilabel, "best_logistic", noted)
    split.classifier("beyond")
    features, out = seen[0]
    assert len(out) and (network.degrees[out] <= papers.ALWAYS).all()
    kept = np.setdiff1d(split.labelled, out)
    np.testing.assert_array_equal(features, split.features("beyond", kept)[split.labelled])
    assert not np.array_equal(features, split.features("beyond", split.labelled)[split.labelled])


def tiny(tmp_path: Path, sets: list[int], edges: list[tuple[int, int]]) -> Path:
    """A .mat file of papers with these sets and citations."""
    rng = np.random.default_rng(0)
    network = np.zeros((len(sets), len(sets)))
    network[tuple(np.array(edges).T)] = 1
    words = rng.poisson(0.5, size=(len(sets), 30)) + np.eye(30, dtype=int)[sets] + 1
    path = tmp_path / "tiny.mat"
    savemat(path, {"network": network, "attrb": words, "group": np.eye(max(sets) + 1)[sets]})
    return path


RING = [(paper, (paper + 1) % 60) for paper in range(60)]


@pytest.mark.parametrize(
    ("sets", "edges", "told"),
    [
        ([0] * 60, RING, "of 20 papers to learn from, 20 have the same set of labels; expected at least two"),
        (
            [0] * 59 + [1],
            RING,
            "have the same set of labels; expected at least two sets, and at least 8 papers",
        ),
        ([0, 1] * 30, [(0, 1)], "none of 1 citations joins two of the 20 papers to learn from"),
        ([0, 1], [(0, 1)], "1 papers to learn from and 1 to test; expected more of both"),
    ],
)
def test_networks_that_teach_nothing_are_refused_before_any_work(tmp_path, monkeypatch, sets, edges, told):
    monkeypatch.setattr(papers, "judged", lambda *case: pytest.fail("began"))
    with pytest.raises(InputError, match=told):
        papers.run(Study("papers", Options(tmp_path / "out", tiny(tmp_path, sets, edges))))


def test_settings_stay_untried_where_no_citation_is_left_to_try_them_on(tmp_path):
    sets = [0, 1] * 30
    first = papers.Problem(load_citations_mat(tiny(tmp_path, sets, RING)), 20, 0).split(0)
    gone = [np.setdiff1d(first.labelled, first.without_some(which)[0]) for which in range(2)]
    # One citation between labelled papers: an end of it is held out both times.
    ends = (int(gone[0][0]), int(gone[1][-1]))
    split = papers.Problem(load_citations_mat(tiny(tmp_path, sets, [ends])), 20, 0).split(0)
    order, told = papers_methods.best_propagated(split)
    assert order.shape == (40, 2) and told["chosen"] == "C 0.3, temperature 1"


def test_targets_are_claimed_for_the_file_read_whatever_its_folder(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    few_sets(tmp_path).rename(folder / "acmv9.mat")
    report = papers.run(Study("papers", Options(tmp_path / "out", folder)), dimensions=20, sizes=papers.TINY)
    assert report.settings["data"] == "acmv9.mat"
    targets = [claim for claim in report.claims if "a target set for acmv9 only" in claim.wanted]
    assert [claim.what for claim in targets] == [
        f"{name}, recall@{k} (one)" for name in ("kernel BP", "kernel BP, best found") for k in (1, 2)
    ]


def test_every_method_has_a_look_of_its_own(tmp_path):
    names = list(papers.Problem(load_citations_mat(few_sets(tmp_path)), 20, 0).methods())
    curves = {name: {kind: np.full((1, 7), 0.5) for kind in ("one", "all")} for name in names}
    lines = drawn(curves, np.array([1, 2, 5])).axes[0].get_lines()
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == len(names)
    assert len({line.get_color() for line in lines}) == len(names)


def test_command_refuses_a_file_that_is_no_network(tmp_path):
    (tmp_path / "foreign.mat").write_bytes(b"not this")
    found = CliRunner().invoke(
        app, ["reproduce", "papers", "--data", str(tmp_path / "foreign.mat"), "--out", str(tmp_path / "out")]
    )
    assert found.exit_code == 2 and "does not begin like one" in found.output.replace("\n", " ")
