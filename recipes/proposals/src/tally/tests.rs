use super::Votes;

#[test]
fn quorum_and_majority_are_needed() {
    for (tier, yes, no, governors, passes) in [
        (1, 1, 0, 2, true),
        (1, 1, 0, 3, false),
        (1, 1, 1, 2, false),
        (3, 2, 1, 3, true),
        (3, 2, 1, 7, false),
        (4, 2, 1, 3, true),
        (4, 3, 2, 5, false),
        (4, 4, 2, 6, true),
        (7, 5, 3, 8, false),
        (4, 0, 0, 0, false),
        (1, 0, 0, 0, false),
    ] {
        let votes = Votes { yes, no, governors };
        assert_eq!(votes.pass(tier), passes, "tier {tier}, {yes} to {no} of {governors}");
    }
}
