from chmnet.viz import plot_pck, plot_precision_recall, plot_reliability


def test_curves_have_their_points_and_are_told_apart() -> None:
    curves = {"one": [(0.0, 1.0), (0.5, 0.8)], "two": [(0.0, 0.9), (1.0, 0.1)]}
    (axes,) = plot_precision_recall(curves).axes
    assert [list(zip(*line.get_data(), strict=True)) for line in axes.lines] == list(curves.values())
    assert len({line.get_color() for line in axes.lines}) == 2
    assert len({line.get_linestyle() for line in axes.lines}) == 2
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["one", "two"]
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 1), (0, 1))


def test_percentages_start_at_zero() -> None:
    (axes,) = plot_pck({"model": [(0.05, 20.0), (0.1, 43.5)]}).axes
    assert axes.get_ylim() == (0, 100)
    assert axes.get_legend() is None


def test_a_curve_without_points() -> None:
    (axes,) = plot_pck({"nothing": []}).axes
    assert [len(line.get_xdata()) for line in axes.lines] == [0]


def test_reliability_stands_beside_the_line_of_a_true_word() -> None:
    (axes,) = plot_reliability({"model": [(0.3, 0.2), (0.9, 1.0)]}).axes
    truth, found = axes.lines
    assert list(zip(*truth.get_data(), strict=True)) == [(0, 0), (1, 1)]
    assert list(zip(*found.get_data(), strict=True)) == [(0.3, 0.2), (0.9, 1.0)]
    assert found.get_marker() == "o"
