#include "jpeg.h"

#include <string.h>

static unsigned number(const uint8_t *at, int bytes, int little) {
    unsigned value = 0;
    for (int k = 0; k < bytes; k++) value = value << 8 | at[little ? bytes - 1 - k : k];
    return value;
}

/* EXIF's tag 0x112 in the first directory; 1 where it is absent or damaged. */
static int orientation_of(const uint8_t *exif, size_t size) {
    int little = size >= 2 && exif[0] == 'I' && exif[1] == 'I';
    if (size < 8) return 1;
    size_t first = number(exif + 4, 4, little);
    if (first > size - 2) return 1;
    unsigned entries = number(exif + first, 2, little);
    size_t entry = first + 2;
    for (unsigned k = 0; k < entries && entry + 12 <= size; k++, entry += 12)
        if (number(exif + entry, 2, little) == 0x112) {
            unsigned value = number(exif + entry + 8, 2, little);
            return value >= 1 && value <= 8 ? (int)value : 1;
        }
    return 1;
}

int pf_jpeg_header(const pf_bytes *given, pf_header *header, pf_fault *fault) {
    const uint8_t *data = given->at;
    size_t size = given->size, at = 2;
    if (size < 2 || data[0] != 0xFF || data[1] != 0xD8)
        return pf_say(fault, PF_NOT_JPEG, size ? "it begins with no JPEG marker" : "it is empty");
    header->orientation = 1;
    while (at + 4 <= size) {
        unsigned marker = data[at + 1];
        if (data[at] == 0xFF && marker == 0xFF) { /* a fill byte */
            at++;
            continue;
        }
        if (data[at] != 0xFF || marker == 0) return pf_say(fault, PF_CORRUPT, "there are stray bytes between its segments");
        size_t length = number(data + at + 2, 2, 0), rest = size - at - 4;
        if (marker >= 0xC0 && marker <= 0xC2) {
            if (rest < 6 || length < 8) break;
            const uint8_t *frame = data + at + 4;
            header->precision = frame[0], header->components = frame[5];
            header->height = (int)number(frame + 1, 2, 0), header->width = (int)number(frame + 3, 2, 0);
            header->progressive = marker == 0xC2;
            if (header->width && header->height) return PF_FINE;
            return pf_say(fault, PF_CORRUPT, "it claims %d x %d pixels", header->width, header->height);
        }
        if (marker == 0xD9 || marker == 0xDA) return pf_say(fault, PF_CORRUPT, "it has no frame");
        if (marker >= 0xC3 && marker <= 0xCF && marker != 0xC4 && marker != 0xCC)
            return pf_say(fault, PF_UNSUPPORTED, "its frame is of kind %X", marker);
        if (marker < 0xC0 || (marker >= 0xD0 && marker <= 0xD8) || marker == 0xDE || marker == 0xDF || (marker >= 0xF0 && marker != 0xFE))
            return pf_say(fault, PF_CORRUPT, "the marker %X does not belong before a frame", marker);
        if (marker == 0xE1 && rest >= 6 && length >= 8 && !memcmp(data + at + 4, "Exif\0\0", 6))
            header->orientation = orientation_of(data + at + 10, (length - 2 < rest ? length - 2 : rest) - 6);
        at += 2 + (length < 2 ? 2 : length);
    }
    return pf_say(fault, PF_TRUNCATED, "it ends within its header");
}
