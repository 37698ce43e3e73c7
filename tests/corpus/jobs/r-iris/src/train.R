print('trained')
