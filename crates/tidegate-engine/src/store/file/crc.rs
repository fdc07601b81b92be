//! CRC-32C, sixteen bytes at a time.

/// The checksum of bytes that follow others with the checksum `before`; 0 to begin with.
pub(super) fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    let mut crc = !before;
    let (blocks, rest) = bytes.as_chunks::<16>();
    for block in blocks {
        let block = u128::from_le_bytes(*block) ^ u128::from(crc);
        crc = 0;
        for (index, table) in (0..).zip(TABLES.iter().rev()) {
            crc ^= table[byte(block, index)];
        }
    }
    for next in rest {
        crc = (crc >> 8) ^ TABLES[0][byte(u128::from(crc ^ u32::from(*next)), 0)];
    }
    !crc
}

const fn byte(block: u128, index: u32) -> usize {
    ((block >> (8 * index)) & 0xff) as usize
}

/// The effect of a byte on the checksum, by how many bytes follow it.
static TABLES: [[u32; 256]; 16] = tables();

const fn tables() -> [[u32; 256]; 16] {
    let mut tables = [[0_u32; 256]; 16];
    let mut value = 0;
    while value < 256 {
        #[allow(clippy::cast_possible_truncation, reason = "below 256")]
        let mut crc = value as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][value] = crc;
        value += 1;
    }
    let mut table = 1;
    while table < 16 {
        let mut value = 0;
        while value < 256 {
            let before = tables[table - 1][value];
            tables[table][value] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            value += 1;
        }
        table += 1;
    }
    tables
}

/// Castagnoli's, with its bits in reverse.
const POLYNOMIAL: u32 = 0x82f6_3b78;

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn known_sums() {
        // The check value of the catalogue, and the examples of RFC 3720, B.4.
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(0, &[0xff; 32]), 0x62a8_ab43);
        let counting: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(0, &counting), 0x46dd_794e);
    }

    #[test]
    fn parts_make_the_whole() {
        let bytes: Vec<u8> = (0..100).collect();
        for cut in 0..100 {
            assert_eq!(crc32c(crc32c(0, &bytes[..cut]), &bytes[cut..]), crc32c(0, &bytes));
        }
    }
}
