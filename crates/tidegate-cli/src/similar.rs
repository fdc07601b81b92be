//! Suggestions for misspelled names.

/// The most similar of the names, if one is similar enough.
pub(crate) fn similar<'n>(
    found: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    if found.len() > LONGEST {
        return None;
    }
    let lower = found.to_lowercase();
    names
        .into_iter()
        .filter(|name| name.len() <= LONGEST)
        .map(|name| (strsim::damerau_levenshtein(&lower, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 4 && *distance < name.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// "did you mean …", or else the known names.
pub(crate) fn hint<'n>(
    found: &str,
    names: impl IntoIterator<Item = &'n str> + Clone,
    what: &str,
) -> String {
    if let Some(meant) = similar(found, names.clone()) {
        return format!("did you mean `{meant}`?");
    }
    let mut names = names.into_iter();
    let shown: Vec<String> = names.by_ref().take(MOST).map(|name| format!("`{name}`")).collect();
    match (shown.is_empty(), names.count()) {
        (true, _) => format!("there are no {what}"),
        (false, 0) => format!("the {what} are {}", shown.join(", ")),
        (false, more) => format!("the {what} are {} and {more} more", shown.join(", ")),
    }
}

/// Longer names are not compared: the cost is the product of the lengths.
const LONGEST: usize = 64;
/// The most names that are listed.
const MOST: usize = 12;
