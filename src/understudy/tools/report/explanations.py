"""What a page explains beside its numbers."""

BEST_TITLE = "Best of all evaluations, and why not to compare by it"
BEST = (
    "The best evaluation of each seed, averaged over seeds. It was chosen by the very number it is judged by, so it "
    "flatters, and most those who vary most. Compare methods by the last value."
)
DIFFERENT_SCALES = (
    "Returns of different tasks are on different scales, so nothing is averaged over tasks here. Scores (0 random, 100 "
    "expert) would be: give the tasks a reference."
)
NOTHING_SHARED = "No task has a number of every method, so nothing is averaged over tasks."
PROFILES = (
    "For every score τ, the share of runs beyond it: the higher a line, the better, and lines that cross mean that "
    "neither is better everywhere."
)
PROFILE_BANDS = " Bands are 95 % intervals (pointwise)."
IMPROVEMENT = (
    "How probably a seed of the row's method beats one of the column's on the same task, ties counting half; below it "
    "the 95 % interval, too narrow for few seeds, and none where every pair, or no pair, is won."
)
DECIDED = " Bold: pairs that the test behind the first sentence tells apart; all others may be chance."
DIAGNOSTICS = (
    "What the algorithms log while they learn: means over seeds, with their range. What matters most for each "
    "algorithm comes first."
)
TASKS = "Every seed of every method; links lead to run directories, as long as the page lies where it was written."
SEEDED = (
    "Lines are means over seeds, bands their 95 % bootstrap intervals (pointwise); a method with one seed has none. "
    "Nothing is smoothed."
)
UNEVEN = " Where a seed ends early, its method's line goes on as the mean of those that are left."
SEEDS_ALONE = "One seed each: nobody knows what another would do."
EPISODES_ALONE = (
    "One seed each: bands are 95 % intervals over the episodes of an evaluation, and say nothing of other seeds."
)
FOOT = (
    "One number per seed: seeds are what a method is judged by, episodes say how well one seed is known. Intervals are "
    "percentile bootstraps over seeds; of few seeds they are too narrow. Everything on this page is in it: it loads "
    "nothing, and prints."
)
IQM = " The sentence's IQM is the mean of the middle half of the seeds, which one outlier hardly moves."
RINGS = "rings are seeds, bars 95 % intervals of their mean"
EVERY_SETTING = "Every run's config.yaml has all of them."
